"""How far the mirror of each site's cached calls has come: one row per site."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, select

from fieldpost.central.store.site_tables import site_mirrors
from fieldpost.central.store.statement import Statement
from fieldpost.core.site_call import Mirror

_COLUMNS = [site_mirrors.c[field.name] for field in fields(Mirror)]

_save = Statement(
    """
    insert into site_mirrors (site, incarnation, cursor, round, is_rereading, reconciled_at, replaced_at,
        replaced_count, refused_count, trouble)
    values (:site, :incarnation, :cursor, :round, :is_rereading, :reconciled_at, :replaced_at, :replaced_count,
        :refused_count, :trouble)
    on conflict (site) do update set incarnation = excluded.incarnation, cursor = excluded.cursor,
        round = excluded.round, is_rereading = excluded.is_rereading, reconciled_at = excluded.reconciled_at,
        replaced_at = excluded.replaced_at, replaced_count = excluded.replaced_count,
        refused_count = excluded.refused_count, trouble = excluded.trouble
    """
)
# Whoever changes the mirror of a site holds this lock, so that two sets of rows of one site never mix.
_lock = Statement("select pg_advisory_xact_lock(hashtextextended(:site, 7305))", sqlite="select :site")


def lock(conn: Connection, site: str) -> None:
    """Be the only one to change this site's mirror until the end of the transaction."""
    _lock.run(conn, site=site)


def load(conn: Connection, site: str) -> Mirror | None:
    row = conn.execute(select(*_COLUMNS).where(site_mirrors.c.site == site)).first()
    return _mirror(row) if row else None


def load_all(conn: Connection, sites: Sequence[str] | None = None) -> dict[str, Mirror]:
    """The mirrors of these sites, or of all."""
    query = select(*_COLUMNS)
    if sites is not None:
        query = query.where(site_mirrors.c.site.in_(sites))
    return {row.site: _mirror(row) for row in conn.execute(query)}


def save(conn: Connection, mirror: Mirror) -> None:
    _save.run(conn, **{field.name: getattr(mirror, field.name) for field in fields(Mirror)})


def _mirror(row: Any) -> Mirror:
    return Mirror(**row._mapping)
