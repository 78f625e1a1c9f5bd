"""Authentication: users by session, programs by API token, sites by site token; and the first account.

A token is found by its public prefix and compared by digest in constant time. Its owner's present state counts: the
sessions and tokens of a disabled user do not work, and a token has at most the role of its owner. The roles publisher
and subscriber are outside the order of roles: an administrator grants them to a token of any user.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

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
from fieldpost.central.store.engine.wake import WakeTopic
from fieldpost.central.store.notifications import audit
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import SYSTEM, AuditEntry
from fieldpost.core.errors import Denied, Unavailable
from fieldpost.core.login import has_ended
from fieldpost.core.sites.node import SiteNode
from fieldpost.link import credentials
from fieldpost.link.credentials import IssuedToken

ADMIN_NAME = "admin"
FIRST_TOKEN = "first start"
GRANTED_ROLES = (Role.PUBLISHER, Role.SUBSCRIBER)
"""Roles that a token may have with any role of its user."""
TOKEN_LIFE = timedelta(days=90)
"""How long an API token is valid, unless another time is given."""
LINK_PATH = "/set-password"
USED_EVERY_S = 60.0
"""The precision of the stored time at which a session or token was last used."""


@dataclass(frozen=True, slots=True)
class FirstAccount:
    """The administrator created at the first start; its secrets are shown only now.

    `link` is the token of the one-time link for choosing the password; None if the caller gave a password. `api_token`
    is None if only the link is new, because the former link was never used.
    """

    name: str
    link: str | None = field(repr=False)
    api_token: str | None = field(repr=False)
    expires_at: datetime


class Accounts:
    """Finds the user or site behind a token."""

    def __init__(
        self, store: Store, clock: Clock, passwords: Passwords | None = None, options: AccountOptions | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._passwords = passwords or Passwords()
        self._options = options or AccountOptions()
        self._used: dict[str, float] = {}
        # Every message of every site is authenticated, and after an outage all sites reconnect at once.
        self._site_tokens = Batcher(self._find_site_tokens)

    async def first_start(
        self, password: str | None = None, *, keep: Callable[[FirstAccount], None] | None = None
    ) -> FirstAccount | None:
        """Create the administrator if there is no account yet; None if somebody can log in already.

        Without `password` the administrator chooses one with a one-time link. If that link expired unused, this makes
        another. `keep` stores the secrets durably. It runs inside the transaction, before the commit: after a crash
        there are either both the account and its secrets, or no account, and the next start creates it again. The
        transaction holds the user's row by then, so of several nodes that start at once only the first runs it.
        """
        now = self._clock.now()
        users = await self._store.read(identities.all_users)
        if users:
            return await self._another_link(users, now, keep)
        token, link = issue("api"), issue("link")
        entry = record(Actor(SYSTEM, Role.ADMIN), "user.add", ADMIN_NAME, now, {"token": token.prefix})
        hashed = None if password is None else await self._passwords.hash(password)
        first = FirstAccount(ADMIN_NAME, link.text if hashed is None else None, token.text, now + self._options.link)
        stored = self._link(link, ADMIN_NAME, now)
        try:
            is_first = await self._store.write(_add_first, hashed, token, stored, entry, _keeping(keep, first))
        except IntegrityError:
            # Another node, starting at the same time, was faster.
            is_first = False
        return first if is_first else None

    async def by_session(self, token: str, *, is_active: bool = True) -> Actor | None:
        """The user of this session, with their present role; None if it is not a session or has ended.

        Use extends a session; the requests of a live page do not count as use (`is_active` is False then).
        """
        found = await self._bearer(token, "session")
        if found is None:
            return None
        session, user = found
        last_used_at = session.last_used_at or session.created_at
        if has_ended(self._clock.now(), last_used_at, session.expires_at, self._options.session_idle):
            return None
        if is_active:
            await self._note_use(session)
        return Actor(user.name, Role(user.role), subscription_owner=user.subscription_owner)

    async def by_api_token(self, text: str) -> Actor | None:
        """The owner of this token, with the lesser of the token's role and the owner's.

        A subscriber's token reaches the subscriptions of the owner name that its user has now.
        """
        found = await self._bearer(text, "api")
        if found is None or found[0].role is None:
            return None
        token, user = found
        given, owned = Role(token.role or ""), Role(user.role)
        role = given if given in GRANTED_ROLES or owned.includes(given) else owned
        of = None
        if role is Role.SUBSCRIBER:
            of = user.subscription_owner or token.subscription_owner
            if of is None:
                return None  # its user is no longer a subscriber
        await self._note_use(token)
        return Actor(user.name, role, token=token.name or token.prefix, subscription_owner=of)

    async def by_site_token(self, token: str) -> SiteNode | None:
        """The site and node that this token belongs to."""
        prefix = credentials.prefix_of(token, "site")
        found = None if prefix is None else await self._site_tokens.submit(prefix)
        if found is None or not self._is_good(token, found):
            return None
        return SiteNode(found.owner, found.node)

    async def site_tokens_changed(self, timeout_s: float) -> None:
        """Return when a token of a site was revoked or replaced on any node, or after the timeout."""
        await self._store.wake.wait(timeout_s, WakeTopic.SITE_TOKENS)

    async def refuse_site(self, token: str) -> Denied:
        """The reason for rejecting a site token. Only the holder of a former token learns that it was revoked."""
        prefix = credentials.prefix_of(token, "site")
        found = None if prefix is None else await self._store.read(identities.get_token, "site", prefix)
        if found is not None and credentials.matches(token, found.digest):
            return Denied(
                "auth.revoked",
                f"this token of site {found.owner!r} was revoked or replaced",
                hint="ask an administrator for a new token: fieldpost sites rotate-token NAME",
            )
        return Denied("auth.invalid", "the token does not belong to a site")

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
            # Reading still works while the store refuses writes; the next use is recorded.
            del self._used[token.prefix]

    async def _another_link(
        self, users: list[UserRecord], now: datetime, keep: Callable[[FirstAccount], None] | None
    ) -> FirstAccount | None:
        has_login = any(one.password_hash is not None or one.subject is not None for one in users)
        if has_login or all(one.name != ADMIN_NAME for one in users) or await self._store.read(logins.has_link, now):
            return None
        link = issue("link")
        entry = record(Actor(SYSTEM, Role.ADMIN), "user.link", ADMIN_NAME, now)
        first = FirstAccount(ADMIN_NAME, link.text, None, now + self._options.link)
        await self._store.write(add_link, self._link(link, ADMIN_NAME, now), entry, _keeping(keep, first))
        return first

    def _link(self, link: IssuedToken, name: str, now: datetime) -> LinkRecord:
        return LinkRecord(link.prefix, link.digest, name, SYSTEM, now, now + self._options.link)


def link_path(token: str) -> str:
    """Path and query of the page for a one-time link."""
    return f"{LINK_PATH}?link={token}"


def issue(kind: str) -> IssuedToken:
    return credentials.issue(kind, secrets.token_bytes(credentials.ENTROPY_BYTES))


def add_link(conn: Connection, link: LinkRecord, entry: AuditEntry, keep: Callable[[], None] | None = None) -> None:
    """Add a one-time link, which replaces the user's former one. `keep` runs before the commit."""
    logins.add_link(conn, link)
    audit.add(conn, [entry])
    if keep is not None:
        keep()


def _keeping(keep: Callable[[FirstAccount], None] | None, first: FirstAccount) -> Callable[[], None] | None:
    return None if keep is None else partial(keep, first)


def _add_first(
    conn: Connection,
    password_hash: str | None,
    token: IssuedToken,
    link: LinkRecord,
    entry: AuditEntry,
    keep: Callable[[], None] | None,
) -> bool:
    if identities.has_users(conn):
        return False
    at, role = entry.occurred_at, Role.ADMIN.value
    identities.add_user(conn, UserRecord(ADMIN_NAME, password_hash, role, at, entry.actor))
    added = TokenRecord(token.prefix, "api", token.digest, ADMIN_NAME, role, at, at + TOKEN_LIFE)
    identities.add_token(conn, replace(added, name=FIRST_TOKEN, generation=1, created_by=entry.actor))
    if password_hash is None:
        logins.add_link(conn, link)
    audit.add(conn, [entry])
    if keep is not None:
        keep()
    return True
