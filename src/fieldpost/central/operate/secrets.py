"""All secrets together: which keys seal them, and sealing them again with a new key."""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import Actions, record, require
from fieldpost.central.secrets.keyring import NONCE_BYTES, Keyring, SecretUnreadable, key_id_of, owner_of
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.notifications import lists as rows
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.lists import Channel

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
    """Actions on all secrets; a single secret belongs to its channel."""

    def __init__(self, store: Store, clock: Clock, keyring: Keyring) -> None:
        super().__init__(store, clock)
        self._keyring = keyring

    async def state(self) -> SecretsState:
        channels = await self._store.read(rows.all_channels)
        counts = Counter(key_id_of(sealed) or "none" for c in channels for sealed in c.secrets.values())
        return SecretsState(self._keyring.key_ids, counts, self._problems(channels))

    async def rotate(self, actor: Actor) -> Rotated:
        """Seal all secrets with this node's first key, a batch of channels at a time.

        Each sealed secret names its key, so that an interrupted rotation can be repeated and continues with the rest.
        """
        require(actor, Role.ADMIN, "secrets.rotate")
        key_id = self._keyring.require_key().key_id
        entry = record(actor, "secrets.rotate", key_id, self._clock.now())
        await self._store.write(audit.add, [entry])
        count, after = 0, ""
        while True:
            batch = await self._store.write(_reseal, self._keyring, key_id, after)
            count += batch.count
            if batch.last is None:
                break
            after = batch.last
        channels = await self._store.read(rows.all_channels)
        left = [c for c in channels if any(key_id_of(sealed) != key_id for sealed in c.secrets.values())]
        return Rotated(key_id, count, self._problems(left))

    def _problems(self, channels: list[Channel]) -> tuple[str, ...]:
        found = [self._keyring.problem_of(channel) for channel in channels]
        return tuple(problem for problem in [self._keyring.problem, *found] if problem is not None)


@dataclass(frozen=True, slots=True)
class _Batch:
    count: int
    last: str | None
    """The last channel of the batch; None for an empty batch."""


def _reseal(conn: Connection, keyring: Keyring, key_id: str, after: str) -> _Batch:
    count, last = 0, None
    for channel in rows.channels_after(conn, after, BATCH):
        last = channel.name
        stale = {name: sealed for name, sealed in channel.secrets.items() if key_id_of(sealed) != key_id}
        resealed = {}
        for name, sealed in stale.items():
            try:
                secret = keyring.open(sealed, owner_of(channel), name)
            except SecretUnreadable:
                continue  # stays as it is and is reported at the end
            resealed[name] = keyring.seal(secret, owner_of(channel), name, os.urandom(NONCE_BYTES))
        # A channel changed at the same time was sealed with this key by that change, or remains for the next rotation.
        if resealed and rows.reseal_channel(conn, replace(channel, secrets={**channel.secrets, **resealed})):
            count += len(resealed)
    return _Batch(count, last)
