"""Sites, their tokens, and their one-time enrolment codes."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, insert, or_, select, update

from fieldpost.central.store.engine.records import Records
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.schema.account_tables import tokens
from fieldpost.central.store.schema.site_tables import enrolments, sites


@dataclass(frozen=True, slots=True)
class SiteRecord:
    name: str
    created_at: datetime
    last_seen_at: datetime | None
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class SiteToken:
    """A token of a site, without its secret."""

    prefix: str
    node: int
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    def is_valid(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)


@dataclass(frozen=True, slots=True)
class Enrolment:
    """A code that a node of a site may exchange for a token, once."""

    prefix: str
    digest: bytes
    site_name: str
    created_by: str
    created_at: datetime
    expires_at: datetime
    ended_at: datetime | None = None
    node: int = 0


_saw = Statement("update sites set last_seen_at = :at where site_name {any:names}", lists={"names": "text"})

_SITE = [sites.c.site_name, sites.c.created_at, sites.c.last_seen_at, sites.c.revoked_at]
_TOKENS = Records(tokens, SiteToken)
_ENROLMENTS = Records(enrolments, Enrolment)


def add(conn: Connection, name: str, now: datetime) -> None:
    conn.execute(insert(sites).values(site_name=name, created_at=now))


def get(conn: Connection, name: str, *, locked: bool = False) -> SiteRecord | None:
    """The site of this name; `locked` against other changes of it and its tokens until the transaction ends."""
    query = select(*_SITE).where(sites.c.site_name == name)
    found = conn.execute(query.with_for_update() if locked else query).first()
    return SiteRecord(*found) if found else None


def known(conn: Connection, names: Collection[str]) -> set[str]:
    """The names of these that are sites."""
    return set(conn.execute(select(sites.c.site_name).where(sites.c.site_name.in_(list(names)))).scalars())


def all_sites(conn: Connection) -> list[SiteRecord]:
    return [SiteRecord(*row) for row in conn.execute(select(*_SITE).order_by(sites.c.site_name))]


def saw(conn: Connection, names: Sequence[str], now: datetime) -> None:
    _saw.run(conn, names=list(names), at=now)


def set_revoked(conn: Connection, name: str, at: datetime | None) -> None:
    conn.execute(update(sites).where(sites.c.site_name == name).values(revoked_at=at))


def tokens_of(conn: Connection, name: str) -> list[SiteToken]:
    """All tokens that the site ever had, newest first."""
    return _TOKENS.all(conn, _is_of(name), by=[tokens.c.created_at.desc(), tokens.c.prefix])


def end_tokens(conn: Connection, name: str, node: int, at: datetime) -> None:
    """Let all tokens of the node expire at this time, if they do not expire sooner."""
    is_later = or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > at)
    conn.execute(update(tokens).where(_is_of(name, node), is_later).values(expires_at=at))


def revoke_tokens(conn: Connection, name: str, now: datetime, node: int | None = None) -> None:
    """Revoke the tokens of one node, or of all nodes of the site."""
    conn.execute(update(tokens).where(_is_of(name, node), tokens.c.revoked_at.is_(None)).values(revoked_at=now))


def add_enrolment(conn: Connection, enrolment: Enrolment) -> None:
    """Add a code; it replaces unused codes of the node."""
    end_enrolments(conn, enrolment.site_name, enrolment.created_at, enrolment.node)
    _ENROLMENTS.add(conn, enrolment)


def get_enrolment(conn: Connection, prefix: str) -> Enrolment | None:
    """The code with this prefix, locked, so that it can be used only once."""
    return _ENROLMENTS.first(conn, enrolments.c.prefix == prefix, is_locked=True)


def end_enrolment(conn: Connection, prefix: str, now: datetime) -> None:
    conn.execute(update(enrolments).where(enrolments.c.prefix == prefix).values(ended_at=now))


def end_enrolments(conn: Connection, name: str, now: datetime, node: int | None = None) -> None:
    """End the codes of one node, or of all nodes of the site."""
    of_node = () if node is None else (enrolments.c.node == node,)
    is_open = (enrolments.c.site_name == name, enrolments.c.ended_at.is_(None), *of_node)
    conn.execute(update(enrolments).where(*is_open).values(ended_at=now))


def open_enrolments(conn: Connection, name: str, now: datetime) -> list[Enrolment]:
    """The codes that the nodes of the site can still use."""
    is_open = (enrolments.c.site_name == name, enrolments.c.ended_at.is_(None), enrolments.c.expires_at > now)
    return _ENROLMENTS.all(conn, *is_open, by=[enrolments.c.node])


def _is_of(name: str, node: int | None = None) -> ColumnElement[bool]:
    of_site = (tokens.c.kind == "site") & (tokens.c.owner == name)
    return of_site if node is None else of_site & (tokens.c.node == node)
