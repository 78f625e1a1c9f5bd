"""API tokens: a program acts for the owner of its token, with the token's role, which is at most the owner's.

A program without an owner gets its own user, who needs no password.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from fieldpost.central.access.accounts import issue
from fieldpost.central.access.audit_trail import Actions, commit, present, record, require
from fieldpost.central.store.accounts import identities
from fieldpost.central.store.accounts.identities import TokenRecord
from fieldpost.central.store.notifications import audit
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.errors import Conflict, InvalidInput, NotFound
from fieldpost.core.login import is_user_name
from fieldpost.core.text import check_label
from fieldpost.link.credentials import IssuedToken

__all__ = ["LIFE_DEFAULT", "LIFE_MAX", "AddedToken", "TokenActions", "TokenRecord"]

LIFE_DEFAULT = timedelta(days=90)
LIFE_MAX = timedelta(days=3660)


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A new token; `token` is shown only now."""

    token_id: str
    name: str
    owner: str
    role: Role
    expires_at: datetime | None
    token: str = field(repr=False)


class TokenActions(Actions):
    """Actions on API tokens."""

    async def add(
        self, actor: Actor, name: str, role: Role, *, owner: str | None = None, life: timedelta | None = LIFE_DEFAULT
    ) -> AddedToken:
        """Add a token for the actor or another user; with `life` None it does not expire."""
        require(actor, Role.ADMIN, "token.add")
        check_label(name, "name")
        owner = owner or actor.name
        if life is not None and not timedelta(0) < life <= LIFE_MAX:
            raise InvalidInput(
                "token.life",
                f"expires_in_s must be greater than 0 and at most {LIFE_MAX.days} days",
                field="expires_in_s",
            )
        now = self._clock.now()
        token, expires_at = issue("api"), None if life is None else now + life
        extra = {"name": name, "role": role.value, "token": token.prefix}
        entry = record(actor, "token.add", owner, now, extra)
        await commit(self._store, f"token {name!r}", _add, name, owner, role, token, expires_at, entry)
        return AddedToken(token.prefix, name, owner, role, expires_at, token.text)

    async def all(self, actor: Actor) -> list[TokenRecord]:
        """Valid tokens: all of them for an administrator, their own for other users."""
        owner = None if actor.role.includes(Role.ADMIN) else actor.name
        return await self._store.read(identities.live_tokens, "api", self._clock.now(), owner)

    async def revoke(self, actor: Actor, token_id: str) -> None:
        """Revoke a token of the actor; an administrator may revoke any token."""
        is_admin = actor.role.includes(Role.ADMIN)
        entry = record(actor, "token.revoke", token_id[:64], self._clock.now())
        if not token_id.isalnum() or not await self._store.write(_revoke, token_id, is_admin, entry):
            raise NotFound("token.unknown", "this token does not exist, or you may not revoke it")


def _add(
    conn: Connection,
    name: str,
    owner: str,
    role: Role,
    token: IssuedToken,
    expires_at: datetime | None,
    entry: AuditEntry,
) -> None:
    found = present(identities.get_user(conn, owner) if is_user_name(owner) else None, "user", owner)
    if not Role(found.role).includes(role):
        raise Conflict(
            "token.role",
            f"{owner} has role {found.role}, so their token cannot have role {role.value}",
        )
    now = entry.occurred_at
    if any(one.name == name for one in identities.live_tokens(conn, "api", now, owner)):
        raise Conflict("token.exists", f"{owner} already has a token named {name!r}")
    added = TokenRecord(token.prefix, "api", token.digest, owner, role.value, now, expires_at)
    identities.add_token(conn, replace(added, name=name, created_by=entry.actor))
    audit.add(conn, [entry])


def _revoke(conn: Connection, token_id: str, is_admin: bool, entry: AuditEntry) -> bool:
    found = identities.get_token(conn, "api", token_id)
    if found is None or not (is_admin or found.owner == entry.actor):
        return False
    if not identities.revoke_token(conn, "api", token_id, entry.occurred_at):
        return False
    audit.add(conn, [entry])
    return True
