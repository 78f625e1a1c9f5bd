"""The latest health report of each site, and the history of its figures."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select

from fieldpost.central.store.engine.purging import DatedTable
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.schema.site_tables import site_health, site_health_samples
from fieldpost.central.store.sites import nodes
from fieldpost.core.sites.health import (
    Freshness,
    HealthFigures,
    SiteHealth,
    best_link,
    figures_from,
    figures_of,
    is_worth_keeping,
    link_state,
    report_from,
)

# Every report replaces the previous one; of two that arrive out of order the later one stays.
_keep = Statement(
    """
    insert into site_health (site, received_at, report, clock_offset_s)
    select u.site, u.received_at, {json:u.report}, u.clock_offset_s from {rows} where true order by u.site
    on conflict (site) do update set received_at = excluded.received_at, report = excluded.report,
        clock_offset_s = excluded.clock_offset_s
    where site_health.received_at <= excluded.received_at
    """,
    rows={"site": "text", "received_at": "moment", "report": "text", "clock_offset_s": "float"},
)
_sampled = Statement(
    """
    update site_health set sampled_at = :at, sampled = {json:u.figures} from {rows} where site_health.site = u.site
    """,
    rows={"site": "text", "figures": "text"},
)

# The figures of a pair are its leader's: with a new leader they become those of its last report.
_adopt = Statement(
    """
    insert into site_health (site, received_at, report, clock_offset_s)
    select site, received_at, report, clock_offset_s from site_nodes
    where site = :site and node = :node and received_at is not null
    on conflict (site) do update set received_at = excluded.received_at, report = excluded.report,
        clock_offset_s = excluded.clock_offset_s
    """
)

SAMPLES = DatedTable("site_health_samples", "taken_at")


def keep(conn: Connection, reports: Sequence[SiteHealth]) -> None:
    """Store the latest report of each site; of several reports of one site the last."""
    newest = {health.site: health for health in reports}
    rows = [(h.site, h.received_at, _json(asdict(h.report)), h.clock_offset_s) for h in newest.values()]
    _keep.run(conn, rows)


def adopt(conn: Connection, site: str, node: int) -> None:
    """Let the figures of the site be those of this node, its new leader, if it has reported."""
    _adopt.run(conn, site=site, node=node)


def get(conn: Connection, site: str) -> SiteHealth | None:
    row = conn.execute(site_health.select().where(site_health.c.site == site)).first()
    return _health(row) if row else None


def load_all(conn: Connection) -> dict[str, SiteHealth]:
    return {row.site: _health(row) for row in conn.execute(site_health.select())}


def sample(conn: Connection, taken_at: datetime, by: Freshness, *, now: datetime) -> int:
    """Store the figures of all sites whose figures have changed under this time; how many."""
    kept: list[tuple[str, dict[str, Any]]] = []
    pairs = nodes.load_all(conn)
    for row in conn.execute(site_health.select()):
        before = figures_from(row.sampled) if row.sampled else None
        health = _health(row)
        heard = [health, *(node.health for node in pairs.get(row.site, ()))]
        figures = figures_of(health, best_link(link_state(one, now, by) for one in heard))
        if row.sampled_at != taken_at and is_worth_keeping(figures, before, row.sampled_at, now):
            kept.append((row.site, asdict(figures)))
    if kept:
        conn.execute(
            insert(site_health_samples),
            [{"site": site, "taken_at": taken_at, "figures": figures} for site, figures in kept],
        )
        _sampled.run(conn, [(site, _json(figures)) for site, figures in kept], at=taken_at)
    return len(kept)


def history(
    conn: Connection, site: str, *, begin: datetime, end: datetime, limit: int
) -> Sequence[tuple[datetime, HealthFigures]]:
    """The newest `limit` samples from `begin` to before `end`, in order; a sample holds until the next."""
    c = site_health_samples.c
    query = (
        select(c.taken_at, c.figures)
        .where(c.site == site, c.taken_at >= begin, c.taken_at < end)
        .order_by(c.taken_at.desc())
        .limit(limit)
    )
    return [(row.taken_at, figures_from(row.figures)) for row in reversed(conn.execute(query).all())]


def _health(row: Any) -> SiteHealth:
    return SiteHealth(
        site=row.site,
        received_at=row.received_at,
        report=report_from(row.report),
        clock_offset_s=row.clock_offset_s,
    )


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)
