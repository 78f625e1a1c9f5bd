"""Users, and the tokens of users, programs and sites."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, select, update

from fieldpost.central.store.engine.purging import PurgedBatch, PurgeRange
from fieldpost.central.store.engine.records import Records
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.schema.account_tables import tokens, users


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token as stored: its digest, never the token."""

    prefix: str
    kind: str
    digest: bytes
    owner: str
    role: str | None
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    name: str | None = None
    generation: int | None = None
    """The number of an API token among those of its name."""
    created_by: str | None = None
    address: str | None = None
    user_agent: str | None = None
    subscription_owner: str | None = None
    """Of an API token of role subscriber whose user has another role; a subscriber's token uses that of its user."""
    node: int = 0
    """The node of the site that a site token belongs to."""


@dataclass(frozen=True, slots=True)
class UserRecord:
    name: str
    password_hash: str | None
    role: str
    created_at: datetime
    created_by: str | None = None
    disabled_at: datetime | None = None
    last_login_at: datetime | None = None
    subject: str | None = None
    subscription_owner: str | None = None
    """The owner whose subscriptions a subscriber may see and change."""
    version: int = 1


_TOKENS = Records(tokens, TokenRecord)
_USERS = Records(users, UserRecord)
_tokens = Statement(
    f"select {_TOKENS.names} from tokens where kind = :kind and prefix {{any:prefixes}}",
    lists={"prefixes": "text"},
    result=_TOKENS.types,
)
# One statement, since every request of a user starts with it.
_bearer = (
    select(*_TOKENS.columns, *_USERS.columns)
    .join_from(tokens, users, users.c.name == tokens.c.owner)
    .where(tokens.c.kind == bindparam("kind"), tokens.c.prefix == bindparam("prefix"))
)


def add_token(conn: Connection, token: TokenRecord) -> None:
    _TOKENS.add(conn, token)


def get_token(conn: Connection, kind: str, prefix: str) -> TokenRecord | None:
    return _TOKENS.first(conn, tokens.c.kind == kind, tokens.c.prefix == prefix)


def get_tokens(conn: Connection, kind: str, prefixes: Sequence[str]) -> dict[str, TokenRecord]:
    """The existing ones of these tokens, by prefix."""
    return {row.prefix: _TOKENS.of(row) for row in _tokens.run(conn, kind=kind, prefixes=list(prefixes))}


def get_bearer(conn: Connection, kind: str, prefix: str) -> tuple[TokenRecord, UserRecord] | None:
    """A token of a user, with the user's current record."""
    row = conn.execute(_bearer, {"kind": kind, "prefix": prefix}).first()
    count = len(_TOKENS.columns)
    return (TokenRecord(*row[:count]), UserRecord(*row[count:])) if row else None


def live_tokens(conn: Connection, kind: str, now: datetime, owner: str | None = None) -> list[TokenRecord]:
    """Tokens that are neither revoked nor expired, newest first; of one owner, or of all."""
    is_live = tokens.c.revoked_at.is_(None) & (tokens.c.expires_at.is_(None) | (tokens.c.expires_at > now))
    is_owned = [] if owner is None else [tokens.c.owner == owner]
    newest_first = tokens.c.created_at.desc(), tokens.c.prefix
    return _TOKENS.all(conn, tokens.c.kind == kind, is_live, *is_owned, by=newest_first)


def named_tokens(conn: Connection, name: str) -> list[TokenRecord]:
    """All API tokens of this name, ended ones included, newest first."""
    return _TOKENS.all(conn, tokens.c.kind == "api", tokens.c.name == name, by=[tokens.c.generation.desc()])


def end_named(conn: Connection, name: str, at: datetime) -> None:
    """Let the API tokens of this name expire at this time, if not before."""
    is_longer = tokens.c.expires_at.is_(None) | (tokens.c.expires_at > at)
    conn.execute(update(tokens).where(tokens.c.kind == "api", tokens.c.name == name, is_longer).values(expires_at=at))


def used_token(conn: Connection, kind: str, prefix: str, now: datetime) -> None:
    conn.execute(update(tokens).where(tokens.c.kind == kind, tokens.c.prefix == prefix).values(last_used_at=now))


def revoke_token(conn: Connection, kind: str, prefix: str, now: datetime) -> bool:
    return _revoke(conn, now, tokens.c.kind == kind, tokens.c.prefix == prefix) == 1


def revoke_all(conn: Connection, kind: str, owner: str, now: datetime) -> int:
    """Revoke all live tokens of this kind and owner; how many."""
    return _revoke(conn, now, tokens.c.kind == kind, tokens.c.owner == owner)


def purge_sessions(conn: Connection, span: PurgeRange) -> PurgedBatch:
    """Delete sessions that expired before the cutoff."""
    old = (
        select(tokens.c.prefix)
        .where(tokens.c.kind == "session", tokens.c.expires_at < span.cutoff)
        .order_by(tokens.c.expires_at)
        .limit(span.limit)
    )
    deleted = conn.execute(delete(tokens).where(tokens.c.prefix.in_(old.scalar_subquery()))).rowcount
    return PurgedBatch(deleted, span.after if deleted >= span.limit else None)


def add_user(conn: Connection, user: UserRecord) -> None:
    _USERS.add(conn, user)


def get_user(conn: Connection, name: str) -> UserRecord | None:
    return _USERS.first(conn, users.c.name == name)


def get_by_subject(conn: Connection, subject: str) -> UserRecord | None:
    return _USERS.first(conn, users.c.subject == subject)


def all_users(conn: Connection) -> list[UserRecord]:
    return _USERS.all(conn, by=[users.c.name])


def lock_admins(conn: Connection) -> list[str]:
    """The enabled administrators, locked until the transaction ends, so that two cannot remove each other."""
    query = select(users.c.name).where(users.c.role == "admin", users.c.disabled_at.is_(None))
    return list(conn.execute(query.order_by(users.c.name).with_for_update()).scalars())


def change_user(conn: Connection, name: str, version: int, values: Mapping[str, Any]) -> bool:
    """Compare-and-set: False if the user has changed since this version."""
    changed = update(users).where(users.c.name == name, users.c.version == version)
    return conn.execute(changed.values(**values, version=version + 1)).rowcount == 1


def remove_user(conn: Connection, name: str) -> bool:
    return conn.execute(delete(users).where(users.c.name == name)).rowcount == 1


def set_password(conn: Connection, name: str, password_hash: str, *, seen: str | None = None) -> bool:
    """Set the password; with `seen` only if that is still the present hash."""
    changed = update(users).where(users.c.name == name)
    if seen is not None:
        changed = changed.where(users.c.password_hash == seen)
    values = {"password_hash": password_hash, "version": users.c.version + 1}
    return conn.execute(changed.values(**values)).rowcount == 1


def logged_in(conn: Connection, name: str, now: datetime) -> None:
    conn.execute(update(users).where(users.c.name == name).values(last_login_at=now))


def has_users(conn: Connection) -> bool:
    return bool(conn.execute(select(func.count()).select_from(users)).scalar())


def _revoke(conn: Connection, now: datetime, *conditions: ColumnElement[bool]) -> int:
    changed = update(tokens).where(*conditions, tokens.c.revoked_at.is_(None))
    return conn.execute(changed.values(revoked_at=now)).rowcount
