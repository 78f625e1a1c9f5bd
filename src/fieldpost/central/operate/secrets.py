"""All secrets together: which keys seal them, and sealing them again with a new key."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import Actions, record, require
from fieldpost.central.secrets.keyring import NONCE_BYTES, Keyring, SecretUnreadable, WithSecrets, key_id_of, owner_of
from fieldpost.central.store.accounts import zgw_clients
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import subscriptions
from fieldpost.central.store.events.events import FIRST_ID
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.notifications import lists as rows
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.lists import Channel, NotificationList
from fieldpost.core.zgw.client import ZgwClient

BATCH = 50


@dataclass(frozen=True, slots=True)
class SecretsState:
    """The keys of this node (the first one seals), the number of secrets by key, and the problems."""

    key_ids: tuple[str, ...]
    counts: Mapping[str, int]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rotated:
    """How many secrets were sealed again, and the problems with the others."""

    key_id: str
    count: int
    problems: tuple[str, ...]


class Secrets(Actions):
    """Actions on all secrets; a single secret belongs to its channel, subscription or ZGW client."""

    def __init__(self, store: Store, clock: Clock, keyring: Keyring) -> None:
        super().__init__(store, clock)
        self._keyring = keyring

    async def state(self) -> SecretsState:
        owners = await self._store.read(_owners)
        counts = Counter(key_id_of(sealed) or "none" for owner in owners for sealed in owner.secrets.values())
        return SecretsState(self._keyring.key_ids, counts, self._problems(owners))

    async def rotate(self, actor: Actor) -> Rotated:
        """Seal all secrets with this node's first key, a batch of channels, subscriptions or clients at a time.

        Each sealed secret names its key, so that an interrupted rotation can be repeated and continues with the rest.
        """
        require(actor, Role.ADMIN, "secrets.rotate")
        key_id = self._keyring.require_key().key_id
        entry = record(actor, "secrets.rotate", key_id, self._clock.now())
        await self._store.write(audit.add, [entry])
        count = 0
        for kind, first in (("channel", ""), ("list", ""), ("subscription", FIRST_ID), ("ZGW client", "")):
            after: str | None = first
            while after is not None:
                batch = await self._store.write(_reseal, self._keyring, key_id, kind, after)
                count += batch.count
                after = batch.last
        owners = await self._store.read(_owners)
        left = [o for o in owners if any(key_id_of(sealed) != key_id for sealed in o.secrets.values())]
        return Rotated(key_id, count, self._problems(left))

    def _problems(self, owners: Sequence[WithSecrets]) -> tuple[str, ...]:
        found = [self._keyring.problem_of(owner) for owner in owners]
        return tuple(problem for problem in [self._keyring.problem, *found] if problem is not None)


@dataclass(frozen=True, slots=True)
class _Batch:
    count: int
    last: str | None
    """The last owner of the batch; None for an empty batch."""


def _owners(conn: Connection) -> list[WithSecrets]:
    """All channels, lists, subscriptions and ZGW clients."""
    found: list[WithSecrets] = [*rows.all_channels(conn), *rows.all_lists(conn), *zgw_clients.all_clients(conn)]
    after: str | None = FIRST_ID
    while after is not None:
        batch = subscriptions.after(conn, after, BATCH)
        found += batch
        after = batch[-1].subscription_id if batch else None
    return found


def _reseal(conn: Connection, keyring: Keyring, key_id: str, kind: str, after: str) -> _Batch:
    count, last = 0, None
    for owner in _batch_after(conn, kind, after):
        last = owner_of(owner).id
        stale = {name: sealed for name, sealed in owner.secrets.items() if key_id_of(sealed) != key_id}
        resealed = {}
        for name, sealed in stale.items():
            try:
                secret = keyring.open(sealed, owner_of(owner), name)
            except SecretUnreadable:
                continue  # stays as it is and is reported at the end
            resealed[name] = keyring.seal(secret, owner_of(owner), name, os.urandom(NONCE_BYTES))
        # An owner changed at the same time was sealed with this key by that change, or remains for the next rotation.
        if resealed and _write(conn, replace(owner, secrets={**owner.secrets, **resealed})):
            count += len(resealed)
    return _Batch(count, last)


def _batch_after(conn: Connection, kind: str, after: str) -> Sequence[WithSecrets]:
    match kind:
        case "channel":
            return rows.channels_after(conn, after, BATCH)
        case "list":
            return rows.lists_after(conn, after, BATCH)
        case "subscription":
            return subscriptions.after(conn, after, BATCH)
        case _:
            return zgw_clients.after(conn, after, BATCH)


def _write(conn: Connection, owner: WithSecrets) -> bool:
    match owner:
        case Channel():
            return rows.reseal_channel(conn, owner)
        case NotificationList():
            return rows.reseal_list(conn, owner)
        case Subscription():
            return subscriptions.reseal(conn, owner)
        case ZgwClient():
            return zgw_clients.reseal(conn, owner)
