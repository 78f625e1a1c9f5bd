"""Clients of the ZGW API: add, rotate, revoke, list; and verifying their tokens.

A client's id is chosen by its application and is the owner of its subscriptions, so a revoked client keeps its row:
adding it again sets scopes, kanalen and secret, and returns its abonnementen to it.
"""

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import Actions, check_name, commit, present, record, require, was_changed
from fieldpost.central.secrets.keyring import NONCE_BYTES, Keyring, owner_of
from fieldpost.central.store.accounts import zgw_clients as rows
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.errors import Conflict, Denied, Unavailable
from fieldpost.core.secret import Secret, check_secret
from fieldpost.core.zgw.client import (
    SECRET_BYTES_ADVISED,
    ZgwClient,
    check_client_id,
    check_kanalen,
    check_scopes,
)
from fieldpost.core.zgw.token import is_signed_by, parse_token, refuse

USED_EVERY_S = 60.0
OPENED_MAX = 10_000
_NOBODY = Secret("no client has this id; the signature is compared all the same, so that the time reveals nothing")


@dataclass(frozen=True, slots=True)
class ClientShown:
    """A client after its secret was set."""

    client: ZgwClient
    secret: Secret | None
    """Generated, and shown only once; None if the caller gave it."""
    warning: str | None = None


class RefusedToken(Denied):
    """A token that no valid secret signed. The caller gets one code; `audit_code` has the reason for the audit log."""

    audit_code: str


class ZgwClients(Actions):
    """Actions on clients, and their authentication."""

    def __init__(self, store: Store, clock: Clock, keyring: Keyring) -> None:
        super().__init__(store, clock)
        self._keyring = keyring
        self._opened: dict[tuple[str, str], Secret] = {}
        self._used: dict[str, float] = {}

    async def add(
        self,
        actor: Actor,
        client_id: str,
        scopes: Sequence[str],
        kanalen: Sequence[str] = (),
        secret: str | None = None,
    ) -> ClientShown:
        """Add a client, or a revoked one again. Without a secret, one is generated and returned."""
        require(actor, Role.ADMIN, "zgw_client.add")
        now = self._clock.now()
        made, given = _new_secret(secret)
        client = ZgwClient(
            client_id=check_client_id(client_id),
            scopes=check_scopes(scopes),
            kanalen=check_kanalen(kanalen),
            created_at=now,
            created_by=actor.name,
        )
        client = replace(client, secrets=self._seal(client, secret=given))
        extra = {"scopes": [scope.value for scope in client.scopes], "kanalen": list(client.kanalen)}
        entry = record(actor, "zgw_client.add", client_id, now, extra)
        added = await commit(self._store, f"ZGW client {client_id!r}", _add, client, entry)
        return ClientShown(added, made, _warning(given))

    async def rotate(self, actor: Actor, client_id: str, secret: str | None = None) -> ClientShown:
        """Replace the secret. For 24 hours tokens that the former one signed are valid too."""
        require(actor, Role.ADMIN, "zgw_client.rotate")
        seen = await self.get(client_id)
        if seen.revoked_at is not None:
            raise Conflict("zgw_client.revoked", f"ZGW client {client_id!r} is revoked", hint="add it again")
        made, given = _new_secret(secret)
        former = self._open(seen, "secret")
        now = self._clock.now()
        wanted = replace(seen, secrets=self._seal(seen, secret=given, former_secret=former), rotated_at=now)
        entry = record(actor, "zgw_client.rotate", client_id, now)
        changed = await commit(self._store, f"ZGW client {client_id!r}", _change, wanted, entry)
        return ClientShown(changed, made, _warning(given))

    async def revoke(self, actor: Actor, client_id: str) -> ZgwClient:
        """Reject the client's tokens from now on. Its abonnementen stay, and get notifications."""
        require(actor, Role.ADMIN, "zgw_client.revoke")
        seen = await self.get(client_id)
        if seen.revoked_at is not None:
            return seen
        now = self._clock.now()
        wanted = replace(seen, revoked_at=now, secrets={})
        entry = record(actor, "zgw_client.revoke", client_id, now)
        return await commit(self._store, f"ZGW client {client_id!r}", _change, wanted, entry)

    async def get(self, client_id: str) -> ZgwClient:
        check_name("zgw_client", client_id)
        found = await self._store.read(rows.get, client_id)
        return present(found, "zgw_client", client_id, label="ZGW client")

    async def all(self) -> list[ZgwClient]:
        """All clients by id, revoked ones included."""
        return await self._store.read(rows.all_clients)

    async def by_token(self, text: str) -> ZgwClient:
        """The client that signed this token. Raises Denied; RefusedToken if no valid secret of the client did."""
        now = self._clock.now()
        token = parse_token(text, now)
        found = await self._store.read_one(rows.get, token.client_id)
        if found is None or found.revoked_at is not None:
            is_signed_by(token, [_NOBODY])
            raise _refused("revoked" if found else "unknown-client", token.client_id)
        valid = [self._open(found, name) for name in found.valid_secrets(now)]
        if not is_signed_by(token, valid):
            raise _refused("wrong-signature", token.client_id)
        await self._note_use(found.client_id)
        return found

    def _open(self, client: ZgwClient, name: str) -> Secret:
        """Opening a secret costs more than verifying a token, so that opened ones are kept; a sealed text is unique."""
        sealed = client.secrets[name]
        key = client.client_id, sealed
        if (opened := self._opened.get(key)) is None:
            opened = self._keyring.open(sealed, owner_of(client), name)
            if len(self._opened) >= OPENED_MAX:
                self._opened.clear()
            self._opened[key] = opened
        return opened

    def _seal(self, client: ZgwClient, **plain: Secret) -> dict[str, str]:
        owner = owner_of(client)
        return {n: self._keyring.seal(one, owner, n, os.urandom(NONCE_BYTES)) for n, one in plain.items()}

    async def _note_use(self, client_id: str) -> None:
        now = self._clock.monotonic()
        if now - self._used.get(client_id, -USED_EVERY_S) < USED_EVERY_S:
            return
        self._used[client_id] = now
        try:
            await self._store.write(rows.used, client_id, self._clock.now())
        except Unavailable:
            # Reading still works while the store refuses writes; the next use is recorded.
            del self._used[client_id]


def _new_secret(given: str | None) -> tuple[Secret | None, Secret]:
    """The secret to show, if one is generated, and the secret to store."""
    if given is not None:
        return None, check_secret(given, "secret")
    made = Secret(secrets.token_urlsafe(SECRET_BYTES_ADVISED))
    return made, made


def _warning(secret: Secret) -> str | None:
    size = len(secret.reveal().encode())
    if size >= SECRET_BYTES_ADVISED:
        return None
    return f"the secret has {size} bytes; tokens signed with fewer than {SECRET_BYTES_ADVISED} can be guessed offline"


def _refused(audit_code: str, client_id: str) -> RefusedToken:
    # Whether the id exists is for the audit log alone.
    denied = RefusedToken(refuse("jwt-invalid", "").code, "the token is not signed by a known client")
    denied.audit_code, denied.actor = audit_code, client_id
    return denied


def _add(conn: Connection, client: ZgwClient, entry: AuditEntry) -> ZgwClient:
    found = rows.get(conn, client.client_id)
    if found is None:
        rows.add(conn, client)
        audit.add(conn, [entry])
        return client
    if found.revoked_at is None:
        raise Conflict(
            "zgw_client.exists",
            f"ZGW client {client.client_id!r} already exists",
            hint="rotate its secret, or revoke it and add it again",
        )
    return _change(conn, replace(client, version=found.version), entry)


def _change(conn: Connection, wanted: ZgwClient, entry: AuditEntry) -> ZgwClient:
    if not rows.change(conn, wanted):
        found = present(rows.get(conn, wanted.client_id), "zgw_client", wanted.client_id)
        raise was_changed("zgw_client", wanted.client_id, found.version)
    audit.add(conn, [entry])
    return replace(wanted, version=wanted.version + 1)
