"""The state of the mirror of each site's cached calls: one row per site."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, select

from fieldpost.central.store.engine.statement import ParameterKind, Statement
from fieldpost.central.store.schema.site_tables import site_mirrors
from fieldpost.core.sites.call_mirror import Mirror

_COLUMNS = [site_mirrors.c[field.name] for field in fields(Mirror)]

_ROWS: Mapping[str, ParameterKind] = {
    "site": "text",
    "incarnation": "text",
    "cursor": "int",
    "high": "int",
    "round": "int",
    "is_rereading": "bool",
    "forgotten": "int",
    "reconciled_at": "moment",
    "replaced_at": "moment",
    "replaced_count": "int",
    "refused_count": "int",
    "last_refusal": "text",
}
_save = Statement(
    f"""
    insert into site_mirrors ({", ".join(_ROWS)})
    select {", ".join(f"u.{name}" for name in _ROWS)} from {{rows}} where true order by u.site
    on conflict (site) do update set {", ".join(f"{name} = excluded.{name}" for name in _ROWS if name != "site")}
    """,
    rows=_ROWS,
)
# A transaction that changes the mirror of a site holds this lock, so that two batches of one site never mix. Locks are
# taken in one order, which prevents deadlocks.
_lock = Statement(
    "select pg_advisory_xact_lock(hashtextextended(u.site, 7305)) from {rows}",
    sqlite="select u.site from {rows}",
    rows={"site": "text"},
)
_these = Statement(
    f"select {', '.join(column.name for column in _COLUMNS)} from site_mirrors where site {{any:sites}}",
    lists={"sites": "text"},
    result={column.name: column.type for column in _COLUMNS},
)


def lock(conn: Connection, sites: Iterable[str]) -> None:
    """Lock the mirrors of these sites until the end of the transaction."""
    _lock.run(conn, [(site,) for site in sorted(set(sites))])


def load(conn: Connection, site: str) -> Mirror | None:
    row = conn.execute(select(*_COLUMNS).where(site_mirrors.c.site == site)).first()
    return _mirror(row) if row else None


def load_all(conn: Connection, sites: Sequence[str] | None = None) -> dict[str, Mirror]:
    """The mirrors of these sites, or of all."""
    found = conn.execute(select(*_COLUMNS)) if sites is None else _these.run(conn, sites=list(sites))
    return {row.site: _mirror(row) for row in found}


def save(conn: Connection, mirrors: Iterable[Mirror]) -> None:
    """Write the mirrors."""
    _save.run(conn, [tuple(getattr(mirror, name) for name in _ROWS) for mirror in mirrors])


def _mirror(row: Any) -> Mirror:
    return Mirror(**row._mapping)
