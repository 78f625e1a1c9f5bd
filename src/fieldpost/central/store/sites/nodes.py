"""The nodes of sites with two, each with its newest health report.

A site that never had a second one has no rows here, and node 0.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select

from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.schema.site_tables import site_nodes
from fieldpost.core.sites.health import SiteHealth, report_from
from fieldpost.core.sites.node import FIRST_NODE, SiteNode


@dataclass(frozen=True, slots=True)
class SiteNodeRecord:
    """One node of a site with two."""

    node: int
    added_at: datetime
    health: SiteHealth | None
    """Its newest report; None if it has never reported."""


# Every report replaces the previous one; of two that arrive out of order the later one stays.
_keep = Statement(
    """
    update site_nodes set received_at = u.received_at, report = {json:u.report}, clock_offset_s = u.clock_offset_s
    from {rows} where site_nodes.site = u.site and site_nodes.node = u.node
        and (site_nodes.received_at is null or site_nodes.received_at <= u.received_at)
    """,
    rows={"site": "text", "node": "int", "received_at": "moment", "report": "text", "clock_offset_s": "float"},
)


def of_site(conn: Connection, site: str) -> list[int]:
    """The nodes of the site, in order."""
    c = site_nodes.c
    return list(conn.execute(select(c.node).where(c.site == site).order_by(c.node)).scalars()) or [FIRST_NODE]


def load_all(conn: Connection, site: str | None = None) -> dict[str, list[SiteNodeRecord]]:
    """The nodes by site, of this site or of all; sites that never had a second node are left out."""
    query = site_nodes.select().order_by(site_nodes.c.site, site_nodes.c.node)
    found: dict[str, list[SiteNodeRecord]] = {}
    for row in conn.execute(query if site is None else query.where(site_nodes.c.site == site)):
        health = None
        if row.received_at is not None:
            health = SiteHealth(
                site=row.site,
                received_at=row.received_at,
                report=report_from(row.report),
                clock_offset_s=row.clock_offset_s,
            )
        found.setdefault(row.site, []).append(SiteNodeRecord(row.node, row.added_at, health))
    return found


def keep(conn: Connection, reports: Iterable[tuple[SiteNode, SiteHealth]]) -> None:
    """Store the latest report of each node."""
    newest = dict(reports)
    rows: Sequence[tuple[object, ...]] = [
        (sender.site, sender.node, health.received_at, json.dumps(asdict(health.report)), health.clock_offset_s)
        for sender, health in newest.items()
    ]
    if rows:
        _keep.run(conn, rows)


def add(conn: Connection, site: str, node: int, now: datetime) -> None:
    """Add a second node."""
    before = set(conn.execute(select(site_nodes.c.node).where(site_nodes.c.site == site)).scalars())
    added = {*of_site(conn, site), node} - before
    conn.execute(insert(site_nodes), [{"site": site, "node": one, "added_at": now} for one in sorted(added)])


def remove(conn: Connection, site: str, node: int) -> None:
    conn.execute(delete(site_nodes).where(site_nodes.c.site == site, site_nodes.c.node == node))
