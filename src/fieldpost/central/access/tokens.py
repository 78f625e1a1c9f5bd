"""API tokens: a program acts for the owner of its token, with the token's role, which is at most the owner's.

A program without an owner gets its own user, who needs no password. A token of the role publisher or subscriber may
belong to any user. A subscriber's token has an owner name: that of its user if the user is a subscriber, else its own.

The name of a token is the source of what its program sends (`app:NAME`), so no two tokens share one, whatever their
owners and even after they ended. Only rotation issues another token of the same name, which keeps ids and ownership.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from fieldpost.central.access.accounts import GRANTED_ROLES, TOKEN_LIFE, issue
from fieldpost.central.access.audit_trail import KEEP, Actions, Keep, commit, present, record, require
from fieldpost.central.store.accounts import identities
from fieldpost.central.store.accounts.identities import TokenRecord
from fieldpost.central.store.notifications import audit
from fieldpost.core.actor import SOURCE_NAME_BYTES_MAX, ZGW_CLIENT, Actor, Role, check_subscription_owner
from fieldpost.core.audit import AuditEntry
from fieldpost.core.errors import Conflict, InvalidInput, NotFound
from fieldpost.core.login import is_user_name
from fieldpost.core.text import check_label, check_path_name, is_label
from fieldpost.core.times import to_text
from fieldpost.link.credentials import IssuedToken

__all__ = ["LIFE_MAX", "OVERLAP_DEFAULT", "TOKEN_LIFE", "AddedToken", "TokenActions", "TokenRecord"]

LIFE_MAX = timedelta(days=3660)
OVERLAP_DEFAULT = timedelta(days=1)
OVERLAP_MAX = timedelta(days=90)


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
        self,
        actor: Actor,
        name: str,
        role: Role,
        *,
        owner: str | None = None,
        subscription_owner: str | None = None,
        life: timedelta | None = TOKEN_LIFE,
    ) -> AddedToken:
        """Add a token for the actor or another user; with `life` None it does not expire.

        `subscription_owner` is for the role subscriber, unless the user is a subscriber.
        """
        require(actor, Role.ADMIN, "token.add")
        check_path_name(check_label(name, "name", SOURCE_NAME_BYTES_MAX), "name")
        if name.startswith(ZGW_CLIENT):
            raise InvalidInput(
                "token.name", f"name must not begin with {ZGW_CLIENT}, which marks clients of the ZGW API", field="name"
            )
        _check_life(life)
        owner = owner or actor.name
        now = self._clock.now()
        token, expires_at = issue("api"), None if life is None else now + life
        extra = {"name": name, "role": role.value, "token": token.prefix}
        extra |= {"subscription_owner": subscription_owner} if subscription_owner else {}
        entry = record(actor, "token.add", owner, now, extra)
        added = TokenRecord(token.prefix, "api", token.digest, owner, role.value, now, expires_at)
        added = replace(added, name=name, generation=1, created_by=actor.name, subscription_owner=subscription_owner)
        await commit(self._store, f"token {name!r}", _add, added, entry)
        return _shown(added, token)

    async def rotate(
        self,
        actor: Actor,
        name: str,
        *,
        overlap: timedelta = OVERLAP_DEFAULT,
        life: timedelta | Keep | None = KEEP,
    ) -> AddedToken:
        """Issue another token of this name, owner and role. The former ones end after the overlap.

        Works for a token that expired or was revoked, which stays so. Unless given, the life is that of the former one.
        """
        require(actor, Role.ADMIN, "token.rotate")
        entry = record(actor, "token.rotate", name[:SOURCE_NAME_BYTES_MAX], self._clock.now())
        if life is not KEEP:
            _check_life(life)
        if not timedelta(0) <= overlap <= OVERLAP_MAX:
            raise InvalidInput(
                "token.overlap", f"overlap_s must be between 0 and {OVERLAP_MAX.days} days", field="overlap_s"
            )
        token = issue("api")
        ends_at = entry.occurred_at + overlap
        made = await commit(self._store, f"token {name!r}", _rotate, name, token, ends_at, life, entry)
        return _shown(made, token)

    async def all(self, actor: Actor) -> list[TokenRecord]:
        """Valid tokens: all of them for an administrator, their own for other users, itself for a lesser token."""
        owner = None if actor.role.includes(Role.ADMIN) else actor.name
        found = await self._store.read(identities.live_tokens, "api", self._clock.now(), owner)
        return found if actor.speaks_for_owner else [one for one in found if one.name == actor.token]

    async def revoke(self, actor: Actor, token_id: str) -> None:
        """Revoke a token of the actor; an administrator may revoke any token, a lesser token only itself."""
        entry = record(actor, "token.revoke", token_id[:64], self._clock.now())
        if not token_id.isalnum() or not await self._store.write(_revoke, token_id, actor, entry):
            raise NotFound("token.unknown", "this token does not exist, or you may not revoke it")


def _check_life(life: timedelta | None) -> None:
    if life is not None and not timedelta(0) < life <= LIFE_MAX:
        raise InvalidInput(
            "token.life",
            f"expires_in_s must be greater than 0 and at most {LIFE_MAX.days} days",
            field="expires_in_s",
        )


def _shown(made: TokenRecord, token: IssuedToken) -> AddedToken:
    assert made.name is not None, "API tokens have a name"
    return AddedToken(made.prefix, made.name, made.owner, Role(made.role or ""), made.expires_at, token.text)


def _add(conn: Connection, added: TokenRecord, entry: AuditEntry) -> None:
    owner, role, name = added.owner, Role(added.role or ""), added.name or ""
    found = present(identities.get_user(conn, owner) if is_user_name(owner) else None, "user", owner)
    if role is Role.SUBSCRIBER and found.subscription_owner is not None:
        if added.subscription_owner is not None:
            raise Conflict(
                "token.owner",
                f"{owner} is a subscriber of {found.subscription_owner!r}, and their tokens are for the same owner",
                hint="leave subscription_owner out",
            )
    else:
        check_subscription_owner(role, added.subscription_owner)
    if role not in GRANTED_ROLES and not Role(found.role).includes(role):
        raise Conflict(
            "token.role",
            f"{owner} has role {found.role}, so their token cannot have role {role.value}",
        )
    if identities.named_tokens(conn, name):
        raise Conflict(
            "token.exists",
            f"there is, or was, a token named {name!r}",
            hint="choose another name, or rotate that token to issue another one of its name",
        )
    identities.add_token(conn, added)
    audit.add(conn, [entry])


def _rotate(
    conn: Connection,
    name: str,
    token: IssuedToken,
    ends_at: datetime,
    life: timedelta | Keep | None,
    entry: AuditEntry,
) -> TokenRecord:
    former = next(iter(identities.named_tokens(conn, name) if is_label(name) else ()), None)
    former = present(former, "token", name, "list the tokens with: fieldpost tokens list")
    present(identities.get_user(conn, former.owner), "user", former.owner)
    if life is KEEP:
        life = None if former.expires_at is None else former.expires_at - former.created_at
    now = entry.occurred_at
    made = replace(
        former,
        prefix=token.prefix,
        digest=token.digest,
        created_at=now,
        expires_at=None if life is None else now + life,
        revoked_at=None,
        last_used_at=None,
        generation=(former.generation or 0) + 1,
        created_by=entry.actor,
    )
    identities.end_named(conn, name, ends_at)
    identities.add_token(conn, made)
    extra = {"token": token.prefix, "replaces": former.prefix, "ends_at": to_text(ends_at)}
    audit.add(conn, [replace(entry, target=former.owner, extra={**(entry.extra or {}), "name": name, **extra})])
    return made


def _revoke(conn: Connection, token_id: str, actor: Actor, entry: AuditEntry) -> bool:
    found = identities.get_token(conn, "api", token_id)
    if found is None or not (actor.role.includes(Role.ADMIN) or found.owner == actor.name):
        return False
    if not actor.speaks_for_owner and found.name != actor.token:
        return False
    if not identities.revoke_token(conn, "api", token_id, entry.occurred_at):
        return False
    audit.add(conn, [entry])
    return True
