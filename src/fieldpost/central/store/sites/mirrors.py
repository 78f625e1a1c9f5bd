"""The state of the mirror of each site's cached calls: one row per site."""

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection

from fieldpost.central.store.engine.records import Records
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.schema.site_tables import site_mirrors
from fieldpost.core.sites.call_mirror import Mirror

_MIRRORS = Records(site_mirrors, Mirror)
_save = Statement(
    f"""
    insert into site_mirrors ({_MIRRORS.names}) select {_MIRRORS.names} from {{rows}} where true order by u.site
    on conflict (site) do update set {", ".join(f"{name} = excluded.{name}" for name in _MIRRORS.types)}
    """,
    rows=_MIRRORS.kinds,
)
# A transaction that changes the mirror of a site holds this lock, so that two batches of one site never mix. Locks are
# taken in one order, which prevents deadlocks.
_lock = Statement(
    "select pg_advisory_xact_lock(hashtextextended(u.site, 7305)) from {rows}",
    sqlite="select u.site from {rows}",
    rows={"site": "text"},
)
_these = Statement(
    f"select {_MIRRORS.names} from site_mirrors where site {{any:sites}}",
    lists={"sites": "text"},
    result=_MIRRORS.types,
)


def lock(conn: Connection, sites: Iterable[str]) -> None:
    """Lock the mirrors of these sites until the end of the transaction."""
    _lock.run(conn, [(site,) for site in sorted(set(sites))])


def load(conn: Connection, site: str) -> Mirror | None:
    return _MIRRORS.first(conn, site_mirrors.c.site == site)


def load_all(conn: Connection, sites: Sequence[str] | None = None) -> dict[str, Mirror]:
    """The mirrors of these sites, or of all."""
    if sites is None:
        return {mirror.site: mirror for mirror in _MIRRORS.all(conn)}
    return {row.site: _MIRRORS.of(row) for row in _these.run(conn, sites=list(sites))}


def save(conn: Connection, mirrors: Iterable[Mirror]) -> None:
    """Write the mirrors."""
    _save.run(conn, [list(_MIRRORS.values(mirror).values()) for mirror in mirrors])
