"""Queries of the KPIs: present values, of all sites or each, and their history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from sqlalchemy import Connection

from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.figures import kpis, samples
from fieldpost.central.watch.shared_read import SharedRead
from fieldpost.clock import Clock
from fieldpost.core.errors import InvalidInput
from fieldpost.core.kpi import NAMES, Snapshot, Thresholds
from fieldpost.core.text import check_label

HISTORY_DEFAULT = timedelta(days=1)
HISTORY_MAX = timedelta(days=3660)
POINTS_MAX = 1500
TRENDS_FRESH_S = 10.0
"""Samples are taken every minute, so charts may be this old."""
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class History:
    """The history of a KPI: points in time order, each the largest value of its step."""

    kpi: str
    site: str | None
    """None for all sites together."""
    begin: datetime
    end: datetime
    step: timedelta
    points: Sequence[tuple[datetime, float]]


class Kpis:
    """Reads the KPIs."""

    def __init__(self, store: Store, clock: Clock, by: Thresholds) -> None:
        self._store = store
        self._clock = clock
        self.by = by
        self._shared = SharedRead(self._read, clock)
        self._trends: dict[tuple[timedelta, timedelta], SharedRead[Mapping[str, History]]] = {}

    async def now(self) -> Snapshot:
        """All KPIs of all sites, at most moments old."""
        return await self._shared.get()

    async def history(
        self, kpi: str, site: str | None = None, begin: datetime | None = None, end: datetime | None = None
    ) -> History:
        """The history of a KPI from `begin` (by default a day before the end) to `end` (by default now)."""
        if kpi not in NAMES:
            raise InvalidInput("kpi.unknown", f"kpi must be one of {', '.join(NAMES)}, got {kpi[:64]!r}", field="kpi")
        if site is not None:
            check_label(site, "site")
        until = end if end is not None else await self._store.read(database_time, self._store.now())
        if until < EARLIEST:
            raise InvalidInput("history.range", f"to must not be before {EARLIEST.year}", field="to")
        since = begin or until - HISTORY_DEFAULT
        check_range(since, until, HISTORY_MAX)
        step = _MINUTE * -((since - until) // (_MINUTE * POINTS_MAX))
        points = await self._store.read(
            samples.history, kpi, site or samples.ALL_SITES, begin=since, end=until, step=step
        )
        return History(kpi, site, since, until, step, points)

    async def trends(self, length: timedelta, step: timedelta) -> Mapping[str, History]:
        """The history of the KPIs of notifications, of all sites together, over this length of time until now.

        All callers share one query, so that a page that many users have open costs as much as one.
        """
        key = length, step
        if key not in self._trends:
            self._trends[key] = SharedRead(partial(self._read_trends, length, step), self._clock, TRENDS_FRESH_S)
        return await self._trends[key].get()

    async def _read_trends(self, length: timedelta, step: timedelta) -> Mapping[str, History]:
        return await self._store.read(_trends, length, step, now=self._store.now())

    async def _read(self) -> Snapshot:
        return await self._store.read(kpis.snapshot, self.by, now=self._store.now())


def check_range(begin: datetime, end: datetime, longest: timedelta) -> None:
    """Check the time range of a history."""
    if not timedelta(0) < end - begin <= longest:
        rule = f"from must be before to, and at most {longest.days} days before it"
        raise InvalidInput("history.range", rule, field="from")


def _trends(conn: Connection, length: timedelta, step: timedelta, *, now: datetime | None) -> dict[str, History]:
    end = database_time(conn, now)
    begin = end - length
    found = samples.trends(conn, begin=begin, end=end, step=step)
    return {name: History(name, None, begin, end, step, points) for name, points in found.items()}
