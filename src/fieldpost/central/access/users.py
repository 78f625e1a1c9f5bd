"""Users: the actions of administrators on accounts."""

from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.access.account_options import AccountOptions
from fieldpost.central.access.accounts import add_link, issue, link_path
from fieldpost.central.access.audit_trail import (
    KEEP,
    Actions,
    Keep,
    commit,
    not_found,
    present,
    record,
    require,
    was_changed,
)
from fieldpost.central.access.logins import end_sessions
from fieldpost.central.store.accounts import identities, logins
from fieldpost.central.store.accounts.identities import TokenRecord, UserRecord
from fieldpost.central.store.accounts.logins import LinkRecord
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role, check_subscription_owner
from fieldpost.core.audit import AuditEntry
from fieldpost.core.errors import Conflict
from fieldpost.core.login import check_user_name, is_user_name

__all__ = ["Link", "TokenRecord", "UserRecord", "Users"]


@dataclass(frozen=True, slots=True)
class Link:
    """A one-time link with which a user chooses a password; its token is shown only now."""

    name: str
    token: str = field(repr=False)
    expires_at: datetime

    @property
    def path(self) -> str:
        """The path of the page, on any address of central."""
        return link_path(self.token)


class Users(Actions):
    """Actions of administrators on accounts."""

    def __init__(self, store: Store, clock: Clock, options: AccountOptions | None = None) -> None:
        super().__init__(store, clock)
        self._options = options or AccountOptions()

    async def add(self, actor: Actor, name: str, role: Role, subscription_owner: str | None = None) -> Link:
        """Add a user, who chooses a password with the returned link. A subscriber has a `subscription_owner`."""
        require(actor, Role.ADMIN, "user.add")
        check_user_name(name)
        check_subscription_owner(role, subscription_owner)
        now = self._clock.now()
        link, stored = self._link(actor, name, now)
        extra = {"role": role.value, "link": stored.prefix}
        extra |= {"subscription_owner": subscription_owner} if subscription_owner else {}
        entry = record(actor, "user.add", name, now, extra)
        added = UserRecord(name, None, role.value, now, actor.name, subscription_owner=subscription_owner)
        await commit(self._store, f"user {name!r}", _add, added, stored, entry)
        return link

    async def all(self, actor: Actor) -> list[UserRecord]:
        require(actor, Role.ADMIN, "user.list")
        return await self._store.read(identities.all_users)

    async def get(self, actor: Actor, name: str) -> UserRecord:
        require(actor, Role.ADMIN, "user.show")
        found = await self._store.read(identities.get_user, name) if is_user_name(name) else None
        return present(found, "user", name)

    async def change(
        self,
        actor: Actor,
        name: str,
        version: int,
        *,
        role: Role | Keep = KEEP,
        subscription_owner: str | Keep | None = KEEP,
        is_disabled: bool | Keep = KEEP,
    ) -> UserRecord:
        """Change the role or a subscriber's owner name, or disable and enable the user; each ends their sessions.

        The tokens of a disabled user do not work until the user is enabled again.
        """
        require(actor, Role.ADMIN, "user.change")
        seen = await self.get(actor, name)
        now = self._clock.now()
        values: dict[str, object] = {}
        role_after = Role(seen.role) if role is KEEP else role
        if subscription_owner is KEEP:
            subscription_owner = seen.subscription_owner if role_after is Role.SUBSCRIBER else None
        wanted = (role_after.value, check_subscription_owner(role_after, subscription_owner))
        if wanted != (seen.role, seen.subscription_owner):
            values["role"], values["subscription_owner"] = wanted
        if is_disabled is not KEEP and is_disabled != (seen.disabled_at is not None):
            values["disabled_at"] = now if is_disabled else None
        is_disabled_after = values.get("disabled_at", seen.disabled_at) is not None
        extra = {"role": values.get("role", seen.role), "is_disabled": is_disabled_after}
        extra |= {"subscription_owner": wanted[1]} if wanted[1] else {}
        entry = record(actor, "user.change", name, now, extra)
        await commit(self._store, f"user {name!r}", _change, name, version, values, entry)
        return await self.get(actor, name)

    async def remove(self, actor: Actor, name: str) -> None:
        """Remove the user with their sessions, tokens and links; the audit log keeps their actions."""
        entry = self._begin(actor, Role.ADMIN, "user.remove", name)
        await self.get(actor, name)
        await commit(self._store, f"user {name!r}", _remove, name, entry)

    async def reset_password(self, actor: Actor, name: str) -> Link:
        """A one-time link with which the user chooses another password.

        The present password works until then, so that a lost link locks nobody out; using the link ends all sessions.
        """
        require(actor, Role.ADMIN, "user.reset_password")
        await self.get(actor, name)
        now = self._clock.now()
        link, stored = self._link(actor, name, now)
        entry = record(actor, "user.reset_password", name, now, {"link": stored.prefix})
        await commit(self._store, f"user {name!r}", add_link, stored, entry)
        return link

    async def log_out(self, actor: Actor, name: str) -> int:
        """End all sessions of a user; returns their number."""
        entry = self._begin(actor, Role.ADMIN, "user.log_out", name)
        await self.get(actor, name)
        return await self._store.write(end_sessions, name, entry)

    async def sessions(self, actor: Actor, name: str) -> list[TokenRecord]:
        """The open sessions of a user."""
        await self.get(actor, name)
        return await self._store.read(identities.live_tokens, "session", self._clock.now(), name)

    def _link(self, actor: Actor, name: str, now: datetime) -> tuple[Link, LinkRecord]:
        token, expires_at = issue("link"), now + self._options.link
        stored = LinkRecord(token.prefix, token.digest, name, actor.name, now, expires_at)
        return Link(name, token.text, expires_at), stored


def _add(conn: Connection, added: UserRecord, link: LinkRecord, entry: AuditEntry) -> None:
    if identities.get_user(conn, added.name) is not None:
        raise Conflict("user.exists", f"user {added.name!r} already exists")
    identities.add_user(conn, added)
    logins.add_link(conn, link)
    audit.add(conn, [entry])


def _change(conn: Connection, name: str, version: int, values: dict[str, object], entry: AuditEntry) -> None:
    if values:
        is_admin_after = values.get("role", "admin") == "admin" and values.get("disabled_at") is None
        _keep_an_admin(conn, name, is_admin_after)
    if not identities.change_user(conn, name, version, values):
        found = present(identities.get_user(conn, name), "user", name)
        raise was_changed("user", name, found.version)
    if values:
        identities.revoke_all(conn, "session", name, entry.occurred_at)
    if values.get("disabled_at") is not None:
        logins.end_links(conn, name, entry.occurred_at)
    audit.add(conn, [entry])


def _remove(conn: Connection, name: str, entry: AuditEntry) -> None:
    _keep_an_admin(conn, name, False)
    if not identities.remove_user(conn, name):
        raise not_found("user", name)
    for kind in ("session", "api"):
        identities.revoke_all(conn, kind, name, entry.occurred_at)
    audit.add(conn, [entry])


def _keep_an_admin(conn: Connection, name: str, is_admin_after: bool) -> None:
    if not is_admin_after and identities.lock_admins(conn) == [name]:
        raise Conflict(
            "user.last_admin",
            f"{name} is the last active administrator",
            hint="give another user the role admin first",
        )
