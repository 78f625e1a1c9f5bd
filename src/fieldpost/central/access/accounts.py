"""Who comes in: people by session, programs by API token, sites by site token; and the very first account.

Tokens are found by their public prefix and compared by digest in constant time. Whoever is found is looked up as he is
now: a person who was disabled has neither session nor token any more, and a token is worth no more than its owner.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from fieldpost.central.access.account_options import AccountOptions
from fieldpost.central.access.audit_trail import record
from fieldpost.central.access.passwords import Passwords
from fieldpost.central.store.accounts import identities, logins
from fieldpost.central.store.accounts.identities import TokenRecord, UserRecord
from fieldpost.central.store.accounts.logins import LinkRecord
from fieldpost.central.store.engine.batcher import Batcher
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import SYSTEM, AuditEntry
from fieldpost.core.errors import Denied, Unavailable
from fieldpost.core.login import has_ended
from fieldpost.link import credentials
from fieldpost.link.credentials import IssuedToken

ADMIN_NAME = "admin"
FIRST_TOKEN = "first start"
LINK_PATH = "/set-password"
USED_EVERY_S = 60.0
"""How exactly it is kept when a session or a token was last used."""


@dataclass(frozen=True, slots=True)
class FirstAccount:
    """The administrator made at the first start; what is secret is shown this once.

    `link` is the one-time link's token, by which he chooses his password; None where one was given. `api_token` is None
    when only the link is new, since nobody had used the one before.
    """

    name: str
    link: str | None = field(repr=False)
    api_token: str | None = field(repr=False)
    expires_at: datetime


class Accounts:
    """Who is who."""

    def __init__(
        self, store: Store, clock: Clock, passwords: Passwords | None = None, options: AccountOptions | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._passwords = passwords or Passwords()
        self._options = options or AccountOptions()
        self._used: dict[str, float] = {}
        # Every message of every site is checked, and a fleet comes back at once.
        self._site_tokens = Batcher(self._find_site_tokens)

    async def first_start(self, password: str | None = None) -> FirstAccount | None:
        """Make the administrator where there is no account yet; None where somebody can log in already.

        He chooses his password by a one-time link, unless the caller has chosen one. Where nobody ever did choose, and
        the link was lost or has expired, there is another.
        """
        now = self._clock.now()
        people = await self._store.read(identities.all_users)
        if people:
            return await self._another_link(people, now)
        token, link = issue("api"), issue("link")
        entry = record(Actor(SYSTEM, Role.ADMIN), "user.add", ADMIN_NAME, now, {"token": token.prefix})
        hashed = None if password is None else await self._passwords.hash(password)
        try:
            is_first = await self._store.write(_add_first, hashed, token, self._link(link, ADMIN_NAME, now), entry)
        except IntegrityError:
            # Another node, starting at the same time, was quicker.
            is_first = False
        if not is_first:
            return None
        return FirstAccount(ADMIN_NAME, link.text if hashed is None else None, token.text, now + self._options.link)

    async def by_session(self, token: str, *, is_active: bool = True) -> Actor | None:
        """Whose session this is, with the role he has now; None when it is no session, or it has ended.

        It goes on for as long as somebody uses it; what a page asks by itself is no use (`is_active` is False then).
        """
        found = await self._bearer(token, "session")
        if found is None:
            return None
        session, operator = found
        last_used_at = session.last_used_at or session.created_at
        if has_ended(self._clock.now(), last_used_at, session.expires_at, self._options.session_idle):
            return None
        if is_active:
            await self._note_use(session)
        return Actor(operator.name, Role(operator.role))

    async def by_api_token(self, token: str) -> Actor | None:
        """In whose name this token speaks, with the lesser of its own role and his."""
        found = await self._bearer(token, "api")
        if found is None or found[0].role is None:
            return None
        given, owned = Role(found[0].role), Role(found[1].role)
        await self._note_use(found[0])
        role = given if owned.includes(given) else owned
        return Actor(found[1].name, role, token=found[0].name or found[0].prefix)

    async def by_site_token(self, token: str) -> str | None:
        """The name of the site whose token this is."""
        prefix = credentials.prefix_of(token, "site")
        found = None if prefix is None else await self._site_tokens.submit(prefix)
        return found.owner if found is not None and self._is_good(token, found) else None

    async def refuse_site(self, token: str) -> Denied:
        """Why this is no site's token now. Only who shows that he has had one hears that it was revoked or replaced."""
        prefix = credentials.prefix_of(token, "site")
        found = None if prefix is None else await self._store.read(identities.get_token, "site", prefix)
        if found is not None and credentials.matches(token, found.digest):
            return Denied(
                "auth.revoked",
                f"this token of site {found.owner!r} was revoked or replaced",
                hint="ask an administrator for a new one: fieldpost sites rotate-token NAME",
            )
        return Denied("auth.invalid", "the token is not a site's")

    async def _find_site_tokens(self, prefixes: Sequence[str]) -> Sequence[TokenRecord | None]:
        found = await self._store.read_one(identities.get_tokens, "site", prefixes)
        return [found.get(prefix) for prefix in prefixes]

    async def _bearer(self, token: str, kind: str) -> tuple[TokenRecord, UserRecord] | None:
        prefix = credentials.prefix_of(token, kind)
        found = None if prefix is None else await self._store.read_one(identities.get_bearer, kind, prefix)
        if found is None or not self._is_good(token, found[0]) or found[1].disabled_at is not None:
            return None
        return found

    def _is_good(self, token: str, found: TokenRecord) -> bool:
        if not credentials.matches(token, found.digest):
            return False
        is_expired = found.expires_at is not None and found.expires_at <= self._clock.now()
        return not is_expired and found.revoked_at is None

    async def _note_use(self, token: TokenRecord) -> None:
        now = self._clock.monotonic()
        if now - self._used.get(token.prefix, -USED_EVERY_S) < USED_EVERY_S:
            return
        if len(self._used) > 10_000:
            self._used.clear()
        self._used[token.prefix] = now
        try:
            await self._store.write(identities.used_token, token.kind, token.prefix, self._clock.now())
        except Unavailable:
            # To look is still possible where nothing can be written; it is noted the next time.
            del self._used[token.prefix]

    async def _another_link(self, people: list[UserRecord], now: datetime) -> FirstAccount | None:
        has_entered = any(one.password_hash is not None or one.subject is not None for one in people)
        if has_entered or all(one.name != ADMIN_NAME for one in people) or await self._store.read(logins.has_link, now):
            return None
        link = issue("link")
        entry = record(Actor(SYSTEM, Role.ADMIN), "user.link", ADMIN_NAME, now)
        await self._store.write(_add_link, self._link(link, ADMIN_NAME, now), entry)
        return FirstAccount(ADMIN_NAME, link.text, None, now + self._options.link)

    def _link(self, link: IssuedToken, name: str, now: datetime) -> LinkRecord:
        return LinkRecord(link.prefix, link.digest, name, SYSTEM, now, now + self._options.link, None)


def link_path(token: str) -> str:
    """Path and query of the page at which a one-time link is used."""
    return f"{LINK_PATH}?link={token}"


def issue(kind: str) -> IssuedToken:
    return credentials.issue(kind, secrets.token_bytes(credentials.ENTROPY_BYTES))


def _add_first(
    conn: Connection, password_hash: str | None, token: IssuedToken, link: LinkRecord, entry: AuditEntry
) -> bool:
    if identities.has_users(conn):
        return False
    at, role = entry.occurred_at, Role.ADMIN.value
    identities.add_user(conn, ADMIN_NAME, password_hash, role, at, created_by=entry.actor)
    identities.add_token(
        conn, "api", token.prefix, token.digest, ADMIN_NAME, role, at, name=FIRST_TOKEN, created_by=entry.actor
    )
    if password_hash is None:
        logins.add_link(conn, link)
    audit.add(conn, [entry])
    return True


def _add_link(conn: Connection, link: LinkRecord, entry: AuditEntry) -> None:
    logins.add_link(conn, link)
    audit.add(conn, [entry])
