"""Login, logout and password changes by the user.

Every failed login has the same answer and the same cost. An attempt is counted as failed, by account and by network,
before its password is checked (`store.logins.charge`); after too many failures the caller must wait, whether or not the
account exists. A browser that has logged in before keeps a signed cookie and is counted on its own, so that nobody else
can make its user wait. Each login creates a new session; a changed role or password ends the former sessions.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256

import structlog
from sqlalchemy import Connection

from fieldpost.central.access.account_options import AccountOptions
from fieldpost.central.access.accounts import issue
from fieldpost.central.access.audit_trail import record
from fieldpost.central.access.passwords import Passwords
from fieldpost.central.access.refusals import Refusals
from fieldpost.central.access.signatures import CookieSigner
from fieldpost.central.store.accounts import identities, logins
from fieldpost.central.store.accounts.identities import TokenRecord, UserRecord
from fieldpost.central.store.accounts.logins import LinkRecord
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.errors import Conflict, Denied, InvalidInput, NotFound, Unavailable
from fieldpost.core.login import (
    WITH_ACCOUNT,
    WITH_EVERYBODY,
    WITH_NETWORK,
    Patience,
    check_password,
    has_ended,
    is_user_name,
    network_of,
)
from fieldpost.core.text import truncate
from fieldpost.link import credentials
from fieldpost.link.credentials import IssuedToken

AGENT_BYTES_MAX = 256
BROWSER = "browser"
BROWSER_S = 180 * 86400
"""How long a browser is known after a login."""

log = structlog.get_logger()


class TooManyLogins(Unavailable):
    """Too many failed logins for this account or from this address; the next attempt is possible after `wait_s`."""

    def __init__(self, wait: timedelta) -> None:
        self.wait_s = wait.total_seconds()
        whole_s = max(1, round(self.wait_s + 0.5))
        super().__init__("login.wait", f"too many failed logins; wait {whole_s} s, then try again")


@dataclass(frozen=True, slots=True)
class Origin:
    """The address and browser of a login."""

    address: str = ""
    agent: str = ""
    browser: str = ""
    """The cookie of a browser that has logged in before."""


@dataclass(frozen=True, slots=True)
class NewSession:
    """A browser's new session; `token` is its cookie."""

    actor: Actor
    token: str = field(repr=False)
    expires_at: datetime
    browser: str = field(default="", repr=False)
    """The cookie by which this browser is known at its next login."""


class Logins:
    """Logins, sessions and passwords of the users themselves."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        passwords: Passwords | None = None,
        options: AccountOptions | None = None,
        refusals: Refusals | None = None,
        signer: CookieSigner | None = None,
    ) -> None:
        self.signer = signer or CookieSigner()
        self._refusals = refusals or Refusals(store, clock)
        self._store = store
        self._clock = clock
        self._passwords = passwords or Passwords()
        self._options = options or AccountOptions()

    async def log_in(self, name: str, password: str, origin: Origin | None = None) -> NewSession:
        """A new session. Raises Denied, with the same text for every reason, or TooManyLogins."""
        origin = origin or Origin()
        user = await self._try(name, password, origin)
        if user is None or user.disabled_at is not None:
            refused = _refused(name, origin)
            # A name without an account may be a password in the wrong field, and the audit log is kept for long.
            known = await self._store.read(identities.get_user, name) if is_user_name(name) else None
            account = known.name if known else None
            await self._refusals.note(refused, "session.open", address=origin.address, target=account)
            raise refused
        return await self.open(user, origin, "password")

    async def open(self, user: UserRecord, origin: Origin, by: str) -> NewSession:
        """Open a session for an authenticated user."""
        now = self._clock.now()
        actor = Actor(user.name, Role(user.role))
        token = issue("session")
        expires_at = now + self._options.session
        entry = record(actor, "session.open", actor.name, now, {"by": by, "session": token.prefix})
        await self._store.write(_open, actor, token, expires_at, origin, entry)
        browser = self.signer.sign(BROWSER, f"{actor.name}:{int(now.timestamp())}")
        return NewSession(actor, token.text, expires_at, browser)

    async def log_out(self, token: str) -> None:
        """End the session at central too, so that a copied cookie does not work."""
        prefix = credentials.prefix_of(token, "session")
        found = None if prefix is None else await self._store.read(identities.get_token, "session", prefix)
        if found is not None and credentials.matches(token, found.digest):
            await self.end(Actor(found.owner, Role(found.role or Role.VIEWER)), found.prefix)

    async def end(self, actor: Actor, prefix: str) -> None:
        """End one of the user's own sessions; NotFound for any other. Denied with a token of less than admin."""
        _require_owner(actor)
        entry = record(actor, "session.close", actor.name, self._clock.now(), {"session": prefix})
        if not await self._store.write(_end, prefix, entry):
            raise NotFound("session.unknown", "you have no such session")

    async def log_out_everywhere(self, actor: Actor) -> int:
        """End all sessions of the user; returns their number."""
        entry = record(actor, "session.close_all", actor.name, self._clock.now())
        return await self._store.write(end_sessions, actor.name, entry)

    async def sessions(self, actor: Actor) -> list[TokenRecord]:
        """The user's open sessions, the newest first. Denied with a token of less than admin."""
        _require_owner(actor)
        now = self._clock.now()
        found = await self._store.read(identities.live_tokens, "session", now, actor.name)
        idle = self._options.session_idle
        return [s for s in found if not has_ended(now, s.last_used_at or s.created_at, s.expires_at, idle)]

    def now(self) -> datetime:
        """The time that decides whether a session has ended."""
        return self._clock.now()

    async def has_password(self, actor: Actor) -> bool:
        """Whether the user has a password here, not only a login at an identity provider."""
        found = await self._store.read(identities.get_user, actor.name)
        return found is not None and found.password_hash is not None

    async def change_password(self, actor: Actor, old: str, new: str, origin: Origin | None = None) -> NewSession:
        """Change the password, end all sessions and open a new one.

        Raises Denied if the old password is wrong, InvalidInput if the new one breaks a rule, or TooManyLogins.
        """
        origin = origin or Origin()
        user = await self._try(actor.name, old, origin)
        if user is None or user.password_hash is None:
            log.warning("password.refused", actor=actor.name, address=origin.address)
            wrong = Denied("password.wrong", "the present password is wrong")
            await self._refusals.note(wrong, "password.change", actor.name, origin.address)
            raise wrong
        check_password(new, actor.name)
        if new == old:
            raise InvalidInput("password.rule", "password must differ from the present one", field="password")
        entry = record(actor, "password.change", actor.name, self._clock.now())
        hashed = await self._passwords.hash(new)
        await self._store.write(_change_password, user.password_hash, hashed, entry)
        return await self.open(user, origin, "password change")

    async def whose_link(self, link: str) -> str:
        """The user of this one-time link; NotFound if it is not valid, or no longer."""
        return (await self._find_link(link)).user_name

    async def use_link(self, link: str, password: str, origin: Origin | None = None) -> NewSession:
        """Set the password, use up the link, end the former sessions and open a new one."""
        found = await self._find_link(link)
        check_password(password, found.user_name)
        hashed = await self._passwords.hash(password)
        user = await self._store.read(identities.get_user, found.user_name)
        if user is None or user.disabled_at is not None:
            raise _no_link()
        actor = Actor(user.name, Role(user.role))
        entry = record(actor, "password.set", actor.name, self._clock.now(), {"link": found.prefix})
        if not await self._store.write(_use_link, found.prefix, hashed, account_key(actor.name), entry):
            raise _no_link()
        return await self.open(user, origin or Origin(), "one-time link")

    async def _find_link(self, link: str) -> LinkRecord:
        prefix = credentials.prefix_of(link, "link")
        found = None if prefix is None else await self._store.read(logins.get_link, prefix)
        is_good = found is not None and credentials.matches(link, found.digest)
        if found is None or not is_good or found.ended_at is not None or found.expires_at <= self._clock.now():
            raise _no_link()
        return found

    async def _try(self, name: str, password: str, origin: Origin) -> UserRecord | None:
        """The user, if this is their password; an unknown user costs the same time."""
        now = self._clock.now()
        own, patience, network = self._keys_of(name, origin, now)
        wait = await self._store.write(logins.charge, patience, now, network)
        if wait > timedelta(0):
            log.warning("login.delayed", name=_shown(name), address=origin.address, wait_s=wait.total_seconds())
            raise TooManyLogins(wait)
        user = await self._store.read(identities.get_user, name) if is_user_name(name) else None
        is_right = await self._passwords.matches(user.password_hash if user else None, password)
        if user is None or not is_right:
            return None
        await self._store.write(logins.succeeded, own, patience.keys() - {own}, self._clock.now())
        return user

    async def charge_network(self, purpose: str, origin: Origin) -> None:
        """Count a try of another kind of login as failed; TooManyLogins if its network has to wait."""
        key = f"{purpose}:{network_of(origin.address)}"
        wait = await self._store.write(logins.charge, {key: WITH_NETWORK}, self._clock.now())
        if wait > timedelta(0):
            log.warning("login.delayed", by=purpose, address=origin.address, wait_s=wait.total_seconds())
            raise TooManyLogins(wait)

    async def give_back_network(self, purpose: str, origin: Origin) -> None:
        """The try succeeded."""
        await self._store.write(logins.give_back, [f"{purpose}:{network_of(origin.address)}"], self._clock.now())

    def _keys_of(self, name: str, origin: Origin, now: datetime) -> tuple[str, dict[str, Patience], str | None]:
        """The key of this user here, the patience with each key to charge, and the key of the network."""
        if self._is_known_browser(name, origin.browser, now):
            own = f"browser:{_digest(origin.browser)}"
            return own, {own: WITH_ACCOUNT}, None
        network, account = network_of(origin.address), account_key(name)
        own = f"{account}@{network}"
        patience = {own: WITH_ACCOUNT, account: WITH_EVERYBODY}
        if not network:
            return own, patience, None
        key = f"network:{network}"
        return own, {**patience, key: WITH_NETWORK}, key

    def _is_known_browser(self, name: str, cookie: str, now: datetime) -> bool:
        """Whether the cookie is from an earlier login of this user."""
        known = self.signer.verify(BROWSER, cookie)
        if known is None:
            return False
        owner, _, since = known.rpartition(":")
        return owner == name and now.timestamp() - int(since) < BROWSER_S


def _require_owner(actor: Actor) -> None:
    if not actor.speaks_for_owner:
        raise Denied(
            "access.token",
            f"a token of role {actor.role.value} must not see or end the sessions of its owner",
            hint="use the console, or a token of role admin",
        )


def account_key(name: str) -> str:
    """A digest of the name as typed, since users sometimes type a password into the wrong field."""
    return f"account:{_digest(name)}"


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def _refused(name: str, origin: Origin) -> Denied:
    log.warning("login.refused", name=_shown(name), address=origin.address)
    return Denied("login.refused", "the name or the password is wrong")


def _no_link() -> NotFound:
    log.warning("link.refused")
    return NotFound(
        "link.invalid",
        "this link is not valid: it was used, has expired, or was replaced by a newer one",
        hint="ask an administrator for a new link: fieldpost users reset-password NAME",
    )


def _shown(name: str) -> str:
    """The name for the log, or `?` if it is not a valid name and may be a password."""
    return name if is_user_name(name) else "?"


def _open(
    conn: Connection, actor: Actor, token: IssuedToken, expires_at: datetime, origin: Origin, entry: AuditEntry
) -> None:
    now = entry.occurred_at
    opened = TokenRecord(token.prefix, "session", token.digest, actor.name, actor.role.value, now, expires_at)
    agent = truncate(origin.agent, AGENT_BYTES_MAX) or None
    identities.add_token(conn, replace(opened, address=origin.address or None, user_agent=agent))
    identities.logged_in(conn, actor.name, now)
    audit.add(conn, [entry])


def _end(conn: Connection, prefix: str, entry: AuditEntry) -> bool:
    found = identities.get_token(conn, "session", prefix)
    if found is None or found.owner != entry.actor:
        return False
    if not identities.revoke_token(conn, "session", prefix, entry.occurred_at):
        return False
    audit.add(conn, [entry])
    return True


def end_sessions(conn: Connection, name: str, entry: AuditEntry) -> int:
    """End all sessions of this user; how many."""
    count = identities.revoke_all(conn, "session", name, entry.occurred_at)
    audit.add(conn, [entry])
    return count


def _change_password(conn: Connection, seen: str, hashed: str, entry: AuditEntry) -> None:
    if not identities.set_password(conn, entry.actor, hashed, seen=seen):
        raise Conflict("password.changed", "the password was changed elsewhere at the same time")
    identities.revoke_all(conn, "session", entry.actor, entry.occurred_at)
    logins.end_links(conn, entry.actor, entry.occurred_at)
    audit.add(conn, [entry])


def _use_link(conn: Connection, prefix: str, hashed: str, account: str, entry: AuditEntry) -> bool:
    now = entry.occurred_at
    if not logins.use_link(conn, prefix, now):
        return False
    identities.set_password(conn, entry.actor, hashed)
    identities.revoke_all(conn, "session", entry.actor, now)
    logins.forget_account(conn, account)
    audit.add(conn, [entry])
    return True
