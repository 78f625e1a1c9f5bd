"""API tokens: programs act by them in the name of a person, with a role of their own that is at most his.

A program that is nobody's gets a user of its own, who needs no password.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import Connection

from fieldpost.central.access.accounts import issue
from fieldpost.central.access.audit_trail import commit, record, require
from fieldpost.central.store.accounts import identities
from fieldpost.central.store.accounts.identities import TokenRecord
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit
from fieldpost.clock import Clock
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
    """A new token; `token` is shown this once."""

    token_id: str
    name: str
    owner: str
    role: Role
    expires_at: datetime | None
    token: str = field(repr=False)


class TokenActions:
    """What people do with API tokens."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def add(
        self, actor: Actor, name: str, role: Role, *, owner: str | None = None, life: timedelta | None = LIFE_DEFAULT
    ) -> AddedToken:
        """A token for the actor or for somebody else; `life` None means that it does not expire."""
        require(actor, Role.ADMIN, "token.add")
        check_label(name, "name")
        owner = owner or actor.name
        if life is not None and not timedelta(0) < life <= LIFE_MAX:
            raise InvalidInput(
                "token.life",
                f"a token lives for more than nothing and at most {LIFE_MAX.days} days",
                field="expires_in_s",
            )
        now = self._clock.now()
        token, expires_at = issue("api"), None if life is None else now + life
        told = {"name": name, "role": role.value, "token": token.prefix}
        entry = record(actor, "token.add", owner, now, told)
        await commit(self._store, f"token {name!r}", _add, name, owner, role, token, expires_at, entry)
        return AddedToken(token.prefix, name, owner, role, expires_at, token.text)

    async def all(self, actor: Actor) -> list[TokenRecord]:
        """Tokens that can be used: all of them for an administrator, one's own for everybody else."""
        owner = None if actor.role.includes(Role.ADMIN) else actor.name
        return await self._store.read(identities.live_tokens, "api", self._clock.now(), owner)

    async def revoke(self, actor: Actor, token_id: str) -> None:
        """The token is worth nothing from now on. One's own, or anybody's for an administrator."""
        is_admin = actor.role.includes(Role.ADMIN)
        entry = record(actor, "token.revoke", token_id[:64], self._clock.now())
        if not token_id.isalnum() or not await self._store.write(_revoke, token_id, is_admin, entry):
            raise NotFound("token.unknown", "there is no such token, or none that you may revoke")


def _add(
    conn: Connection,
    name: str,
    owner: str,
    role: Role,
    token: IssuedToken,
    expires_at: datetime | None,
    entry: AuditEntry,
) -> None:
    found = identities.get_user(conn, owner) if is_user_name(owner) else None
    if found is None:
        raise NotFound("user.unknown", f"there is no user named {owner[:64]!r}")
    if not Role(found.role).includes(role):
        raise Conflict("token.role", f"{owner} is {found.role}, so his token cannot be {role.value}")
    now = entry.occurred_at
    if any(one.name == name for one in identities.live_tokens(conn, "api", now, owner)):
        raise Conflict("token.exists", f"{owner} has a token named {name!r} already")
    identities.add_token(
        conn,
        "api",
        token.prefix,
        token.digest,
        owner,
        role.value,
        now,
        expires_at,
        name=name,
        created_by=entry.actor,
    )
    audit.add(conn, [entry])


def _revoke(conn: Connection, token_id: str, is_admin: bool, entry: AuditEntry) -> bool:
    found = identities.get_token(conn, "api", token_id)
    if found is None or not (is_admin or found.owner == entry.actor):
        return False
    if not identities.revoke_token(conn, "api", token_id, entry.occurred_at):
        return False
    audit.add(conn, [entry])
    return True
