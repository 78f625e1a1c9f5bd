"""Who may come in: people by password and session, programs by API token, sites by site token.

Tokens are found by their public prefix and compared by digest in constant time. A password costs the same time whether
or not the name exists, and no more than a few are hashed at once, since each takes 64 MiB for a moment.
"""

import asyncio
import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from fieldpost.central.operate.acts import is_name, record
from fieldpost.central.store import audit, identities
from fieldpost.central.store.engine import Store
from fieldpost.central.store.identities import OperatorRecord, TokenRecord
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.errors import Denied
from fieldpost.link import credentials
from fieldpost.link.credentials import IssuedToken

ADMIN_NAME = "admin"
PASSWORD_BYTES_MAX = 1024
"""Longer ones are refused before they are hashed."""
HASHES_MAX = 2
SESSION = timedelta(hours=12)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class FirstAccount:
    """The administrator made at the first start; password and token are shown this once."""

    name: str
    password: str = field(repr=False)
    api_token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Session:
    """A browser's session; `token` is its cookie."""

    actor: Actor
    token: str = field(repr=False)
    expires_at: datetime


class Accounts:
    """Accounts, sessions and tokens."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._hasher = PasswordHasher()
        self._hashing = asyncio.Semaphore(HASHES_MAX)
        self._nobody: str | None = None

    async def first_start(self) -> FirstAccount | None:
        """Make the administrator where there is no account yet; None where there is one."""
        if await self._store.read(identities.has_operators):
            return None
        password = readable_password(secrets.token_bytes(PASSWORD_SYLLABLES))
        token = _issue("api")
        actor = Actor(ADMIN_NAME, Role.ADMIN)
        entry = record(actor, "account.add", ADMIN_NAME, self._clock.now(), {"token": token.prefix})
        try:
            is_first = await self._store.write(_add_first, actor, await self._hash(password), token, entry)
        except IntegrityError:
            # Another node, starting at the same time, was quicker.
            is_first = False
        return FirstAccount(ADMIN_NAME, password, token.text) if is_first else None

    async def log_in(self, name: str, password: str) -> Session:
        """A new session, or Denied with one text whatever was wrong."""
        operator = await self._check_password(name, password)
        if operator is None:
            log.warning("login.refused", name=name[:64])
            raise Denied("login.refused", "the name or the password is wrong")
        now = self._clock.now()
        actor = Actor(operator.name, Role(operator.role))
        token = _issue("session")
        entry = record(actor, "session.open", actor.name, now)
        await self._store.write(_open_session, actor, token, now + SESSION, entry)
        return Session(actor, token.text, now + SESSION)

    async def log_out(self, token: str) -> None:
        """End the session at central too, so that a copy of the cookie is worth nothing."""
        prefix = credentials.prefix_of(token, "session")
        if prefix is not None and await self._verify(token, "session") is not None:
            await self._store.write(identities.revoke_token, "session", prefix, self._clock.now())

    async def by_session(self, token: str) -> Actor | None:
        """Whose session this is, with the role he has now; None when it is no session, or it has ended."""
        found = await self._verify(token, "session")
        operator = None if found is None else await self._store.read(identities.get_operator, found.owner)
        return None if operator is None else Actor(operator.name, Role(operator.role))

    async def by_api_token(self, token: str) -> Actor | None:
        found = await self._verify(token, "api")
        return None if found is None or found.role is None else Actor(found.owner, Role(found.role))

    async def by_site_token(self, token: str) -> str | None:
        """The name of the site whose token this is."""
        found = await self._verify(token, "site")
        return None if found is None else found.owner

    async def _verify(self, token: str, kind: str) -> TokenRecord | None:
        prefix = credentials.prefix_of(token, kind)
        found = None if prefix is None else await self._store.read(identities.get_token, kind, prefix)
        if found is None or not credentials.matches(token, found.digest):
            return None
        is_expired = found.expires_at is not None and found.expires_at <= self._clock.now()
        return None if is_expired or found.revoked_at is not None else found

    async def _check_password(self, name: str, password: str) -> OperatorRecord | None:
        if len(password.encode("utf-8", "replace")) > PASSWORD_BYTES_MAX:
            return None
        operator = await self._store.read(identities.get_operator, name) if is_name(name) else None
        if self._nobody is None:
            self._nobody = await self._hash(secrets.token_urlsafe())
        stored = operator.password_hash if operator else self._nobody
        async with self._hashing:
            is_right = await asyncio.to_thread(self._matches, stored, password)
        return operator if is_right else None

    def _matches(self, stored: str, password: str) -> bool:
        try:
            return self._hasher.verify(stored, password.encode("utf-8", "replace"))
        except (VerificationError, InvalidHashError):
            return False

    async def _hash(self, password: str) -> str:
        async with self._hashing:
            return await asyncio.to_thread(self._hasher.hash, password)


PASSWORD_SYLLABLES = 12
_CONSONANTS = "bdfghjklmnprstvz"
_VOWELS = "aeio"


def readable_password(entropy: bytes) -> str:
    """Syllables that can be read out over a telephone, six bits each: `dova-lite-ramu-…`."""
    syllables = [_CONSONANTS[byte & 15] + _VOWELS[byte >> 4 & 3] for byte in entropy]
    return "-".join(first + second for first, second in zip(syllables[::2], syllables[1::2], strict=True))


def _issue(kind: str) -> IssuedToken:
    return credentials.issue(kind, secrets.token_bytes(credentials.ENTROPY_BYTES))


def _add_first(conn: Connection, actor: Actor, password_hash: str, token: IssuedToken, entry: AuditEntry) -> bool:
    if identities.has_operators(conn):
        return False
    at = entry.occurred_at
    identities.add_operator(conn, actor.name, password_hash, actor.role.value, at)
    identities.add_token(conn, "api", token.prefix, token.digest, actor.name, actor.role.value, at)
    audit.add(conn, [entry])
    return True


def _open_session(conn: Connection, actor: Actor, token: IssuedToken, expires_at: datetime, entry: AuditEntry) -> None:
    identities.add_token(
        conn, "session", token.prefix, token.digest, actor.name, actor.role.value, entry.occurred_at, expires_at
    )
    audit.add(conn, [entry])
