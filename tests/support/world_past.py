"""The sites of the sample world, and what was kept of the week before the night in which one looks at it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from fieldpost.central.store.figures import samples
from fieldpost.central.store.sites import health as site_health
from fieldpost.core.kpi import KPIS, Snapshot
from fieldpost.core.sites.health import Freshness, SiteHealth, SiteReport
from fieldpost.core.times import to_text
from fieldpost.link.messages import Health

Call = tuple[str, str, str, str | None, int | None]
"""Category, target, status, error, HTTP status."""

TIMED_OUT = "no answer within 30 s"
CONFLICT = "HTTP 409: order 20931 exists already"
LOCKED = "database is locked"


CALLS = ("external_call", "database_write")


@dataclass(frozen=True)
class SiteRole:
    """What a site does in the world."""

    name: str
    busy: float
    """How much comes from it, against the others."""
    script: str = "watch.py"
    instance: str = "line-1"
    parked: int = 0
    rejected: int = 0
    backlog: int = 0
    is_there: bool = True
    """Whether it reports as the night ends."""
    forward_error: str | None = None
    calls: tuple[Call, ...] = ()


SITES = (
    SiteRole(
        "plant-north",
        3,
        "post_orders.py",
        "erp-gate",
        parked=2,
        rejected=1,
        calls=(
            ("external_call", "erp POST /orders", "parked", CONFLICT, 409),
            ("external_call", "erp POST /orders", "delivered", None, 201),
            ("external_call", "erp POST /stock", "retrying", TIMED_OUT, None),
            ("database_write", "plant counts", "delivered", None, None),
            ("external_call", "weather GET /now", "failed", "HTTP 404: there is no such station", 404),
            ("external_call", "erp POST /orders", "parked", "HTTP 422: quantity must be positive", 422),
            ("database_write", "plant counts", "pending", None, None),
            ("external_call", "erp POST /stock", "discarded", TIMED_OUT, None),
        ),
    ),
    SiteRole("plant-south", 2, "watch_heat.py", "boiler-1", backlog=12),
    SiteRole(
        "harbour",
        2,
        "watch_quay.py",
        "crane-2",
        backlog=340,
        forward_error="central said 429: more than 200 messages a second",
        calls=(("database_write", "tides readings", "retrying", LOCKED, None),),
    ),
    SiteRole("quarry", 1, "watch_belts.py", "belt-4", is_there=False),
    SiteRole(
        "island",
        1,
        "post_tides.py",
        "gauge-1",
        parked=1,
        backlog=57,
        is_there=False,
        calls=(("external_call", "erp POST /tides", "parked", "HTTP 503: down for maintenance", 503),),
    ),
    SiteRole("depot-west", 1, "meter.py", "meter-2"),
    SiteRole("old-mill", 0, is_there=False),
)


def health(role: SiteRole, now: datetime, version: str) -> Health:
    """What the site says of itself."""
    waiting = [category for category, _, status, *_ in role.calls if status in ("pending", "retrying")]
    ages = [(30 + 11 * number) * 60.0 for number, call in enumerate(role.calls) if call[2] in ("pending", "retrying")]
    return Health(
        sent_at=to_text(now),
        version=version,
        backlog={"notification": role.backlog} | {category: waiting.count(category) for category in CALLS},
        oldest_age_s=max([role.backlog * 2.0, *ages]),
        parked=role.parked,
        rejected=role.rejected,
        disk_free_bytes=41_200_000_000,
        events={"warning": role.parked + role.rejected, "error": role.parked},
        is_forwarding=role.forward_error is None,
        forward_error=role.forward_error,
        failing_for_s=95.0 if role.forward_error else None,
        uptime_s=6.2 * 86400,
    )


def keep_past(conn: Connection, begin: datetime, end: datetime, version: str) -> None:
    """The KPIs and the health of the sites from `begin` to `end`, as the sampler would have kept them."""
    names = [kpi.name for kpi in KPIS]
    for at in _moments(begin, end):
        of_sites = {role.name: _figures(role, at, names) for role in SITES if role.busy}
        samples.add(conn, at, Snapshot(at, of_sites))
        site_health.keep(conn, [_reported(role, at, version) for role in SITES if role.busy])
        site_health.sample(conn, at, Freshness(), now=at)


def _moments(begin: datetime, end: datetime) -> Iterator[datetime]:
    """Every quarter of an hour."""
    at = begin.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    while at < end:
        yield at
        at += timedelta(minutes=15)


def _figures(role: SiteRole, at: datetime, names: list[str]) -> dict[str, float]:
    tide = _tide(at)
    bad_hour = at.weekday() == 3 and at.hour in (13, 14)
    known = {
        "queue_depth": round(role.busy * (0.1 + 7 * tide) * (14 if bad_hour else 1)),
        "stuck": round(role.busy * 6) if bad_hour else 0,
        "parked": round(role.busy * (1 + at.day % 3)),
        "delivered_last_interval": round(role.busy * (0.1 + 28 * tide) * (0.1 if bad_hour else 1)),
        "oldest_pending_age_s": 40 * tide + (900 if bad_hour else 0),
    }
    return {name: float(known.get(name, 0)) for name in names}


def _reported(role: SiteRole, at: datetime, version: str) -> SiteHealth:
    backlog = round(role.backlog * (0.2 + _tide(at))) + (90 if at.hour == 4 else 0)
    report = SiteReport(
        version=version,
        backlog={"notification": backlog, "external_call": len(role.calls) // 2, "database_write": 0},
        oldest_age_s=backlog * 2.0,
        parked=role.parked,
        rejected=role.rejected,
        disk_free_bytes=41_000_000_000,
        events={},
        is_forwarding=True,
        forward_error=None,
        failing_for_s=None,
        uptime_s=86400.0,
    )
    return SiteHealth(site=role.name, received_at=at, report=report, clock_offset_s=0.02)


def _tide(at: datetime) -> float:
    """0 at night, 1 at noon, less on a Sunday."""
    day = (1 - math.cos(2 * math.pi * (at.hour + at.minute / 60) / 24)) / 2
    return day * (0.35 if at.weekday() == 6 else 1)
