"""Who may come in: sites, operators, and the tokens of both."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, insert, select, update

from fieldpost.central.store.account_tables import operators, tokens
from fieldpost.central.store.tables import sites


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token as stored: its digest, never the token."""

    prefix: str
    kind: str
    digest: bytes
    owner: str
    role: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class SiteRecord:
    name: str
    created_at: datetime
    last_seen_at: datetime | None


@dataclass(frozen=True, slots=True)
class OperatorRecord:
    name: str
    password_hash: str
    role: str


_TOKEN_COLUMNS = [tokens.c[name] for name in TokenRecord.__dataclass_fields__]


def add_token(
    conn: Connection,
    kind: str,
    prefix: str,
    digest: bytes,
    owner: str,
    role: str | None,
    now: datetime,
    expires_at: datetime | None = None,
) -> None:
    conn.execute(
        insert(tokens).values(
            prefix=prefix,
            kind=kind,
            digest=digest,
            owner=owner,
            role=role,
            created_at=now,
            expires_at=expires_at,
        )
    )


def get_token(conn: Connection, kind: str, prefix: str) -> TokenRecord | None:
    row = conn.execute(select(*_TOKEN_COLUMNS).where(tokens.c.kind == kind, tokens.c.prefix == prefix)).first()
    return TokenRecord(*row) if row else None


def revoke_token(conn: Connection, kind: str, prefix: str, now: datetime) -> bool:
    changed = update(tokens).where(tokens.c.kind == kind, tokens.c.prefix == prefix, tokens.c.revoked_at.is_(None))
    return conn.execute(changed.values(revoked_at=now)).rowcount == 1


def add_site(conn: Connection, name: str, now: datetime) -> None:
    conn.execute(insert(sites).values(site_name=name, created_at=now))


def get_site(conn: Connection, name: str) -> SiteRecord | None:
    row = conn.execute(
        select(sites.c.site_name, sites.c.created_at, sites.c.last_seen_at).where(sites.c.site_name == name)
    )
    found = row.first()
    return SiteRecord(*found) if found else None


def all_sites(conn: Connection) -> list[SiteRecord]:
    query = select(sites.c.site_name, sites.c.created_at, sites.c.last_seen_at).order_by(sites.c.site_name)
    return [SiteRecord(*row) for row in conn.execute(query)]


def saw_site(conn: Connection, name: str, now: datetime) -> None:
    conn.execute(update(sites).where(sites.c.site_name == name).values(last_seen_at=now))


def add_operator(conn: Connection, name: str, password_hash: str, role: str, now: datetime) -> None:
    conn.execute(insert(operators).values(name=name, password_hash=password_hash, role=role, created_at=now))


def get_operator(conn: Connection, name: str) -> OperatorRecord | None:
    row = conn.execute(
        select(operators.c.name, operators.c.password_hash, operators.c.role).where(operators.c.name == name)
    ).first()
    return OperatorRecord(*row) if row else None


def set_password(conn: Connection, name: str, password_hash: str) -> bool:
    return (
        conn.execute(update(operators).where(operators.c.name == name).values(password_hash=password_hash)).rowcount
        == 1
    )


def has_operators(conn: Connection) -> bool:
    return bool(conn.execute(select(func.count()).select_from(operators)).scalar())
