"""Every KPI once: its name, unit, help, and its formula over plain rows, which is the oracle for the SQL.

A KPI is computed from the table as it stands (no state of its own), for each source site and for all together. What is
held behind a breaker counts as stuck when it is old enough, since nobody has it yet; it is never overdue, since nobody
failed to take it. *Stuck* and *overdue* are shown and never acted on.

To add a KPI: one entry below, and its column in `central/store/kpis.py`. A contract test compares the two on random
tables; API, command line, metrics, history and the reference page read this registry.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from fieldpost.core.notification import LIVE, Status

Figures = Mapping[str, float]
"""The KPIs of one site, or of all together, by name."""

SWEEPS_UNTIL_OVERDUE = 2


@dataclass(frozen=True, slots=True)
class Row:
    """What of a notification counts for a KPI."""

    site: str
    status: Status
    created_at: datetime
    due_at: datetime | None = None
    is_held: bool = False
    lease_until: datetime | None = None
    delivered_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the KPIs are measured by."""

    stuck_after: timedelta = timedelta(minutes=10)
    overdue_after: timedelta = timedelta(seconds=20)
    """So many sweeps of the dispatcher as make a row overdue."""
    delivered_window: timedelta = timedelta(minutes=1)


class Fold(StrEnum):
    """How the figures of all sites make the one of all together."""

    SUM = "sum"
    MAX = "max"


Formula = Callable[[Sequence[Row], datetime, Thresholds], float]


@dataclass(frozen=True, slots=True)
class Kpi:
    """A number computed from the table."""

    name: str
    unit: str
    help: str
    formula: Formula
    fold: Fold = Fold.SUM


def _queue_depth(rows: Sequence[Row], _now: datetime, _by: Thresholds) -> float:
    return sum(row.status in LIVE for row in rows)


def _stuck(rows: Sequence[Row], now: datetime, by: Thresholds) -> float:
    return sum(is_stuck(row.status, row.created_at, now, by.stuck_after) for row in rows)


def _overdue(rows: Sequence[Row], now: datetime, by: Thresholds) -> float:
    return sum(_is_overdue(row, now, by.overdue_after) for row in rows)


def _parked(rows: Sequence[Row], _now: datetime, _by: Thresholds) -> float:
    return sum(row.status is Status.PARKED for row in rows)


def _delivered(rows: Sequence[Row], now: datetime, by: Thresholds) -> float:
    return sum(row.delivered_at is not None and now - row.delivered_at < by.delivered_window for row in rows)


def _oldest_pending_age(rows: Sequence[Row], now: datetime, _by: Thresholds) -> float:
    return max(((now - row.created_at).total_seconds() for row in rows if row.status in LIVE), default=0.0)


KPIS: tuple[Kpi, ...] = (
    Kpi("queue_depth", "notifications", "Pending or retrying: what is still to be delivered.", _queue_depth),
    Kpi("stuck", "notifications", "Pending or retrying for longer than `watch.stuck_after_s`.", _stuck),
    Kpi(
        "overdue",
        "notifications",
        "Due for longer than two sweeps (`dispatch.interval_s`) and in no node's hands; held ones are left out. It"
        " should be 0: else the nodes cannot keep up, or none dispatches.",
        _overdue,
    ),
    Kpi("parked", "notifications", "Given up until an operator retries or discards them.", _parked),
    Kpi(
        "delivered_last_interval",
        "notifications",
        "Delivered within the last `watch.delivered_window_s`.",
        _delivered,
    ),
    Kpi(
        "oldest_pending_age_s",
        "seconds",
        "The age of the oldest one that is pending or retrying; 0 when there is none.",
        _oldest_pending_age,
        Fold.MAX,
    ),
)
NAMES = tuple(kpi.name for kpi in KPIS)
NOTHING: Figures = dict.fromkeys(NAMES, 0.0)
"""The figures of a site that has no rows."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All KPIs at one moment."""

    as_of: datetime
    of_sites: Mapping[str, Figures]

    @property
    def total(self) -> Figures:
        """Of all sites together."""
        return fold(self.of_sites.values())


def is_stuck(status: Status, created_at: datetime, now: datetime, stuck_after: timedelta) -> bool:
    """Pending or retrying for longer than the threshold."""
    return status in LIVE and now - created_at > stuck_after


def compute(rows: Iterable[Row], now: datetime, by: Thresholds) -> Figures:
    """All KPIs of these rows together."""
    found = list(rows)
    return {kpi.name: float(kpi.formula(found, now, by)) for kpi in KPIS}


def compute_by_site(rows: Iterable[Row], now: datetime, by: Thresholds) -> dict[str, Figures]:
    """All KPIs of each site that has rows."""
    of_sites: dict[str, list[Row]] = {}
    for row in rows:
        of_sites.setdefault(row.site, []).append(row)
    return {site: compute(found, now, by) for site, found in of_sites.items()}


def fold(of_sites: Iterable[Figures]) -> Figures:
    """The figures of all sites together, from those of each."""
    found = list(of_sites)
    return {kpi.name: float(_FOLDS[kpi.fold]([figures[kpi.name] for figures in found])) for kpi in KPIS}


def _largest(values: Sequence[float]) -> float:
    return max(values, default=0.0)


_FOLDS: Mapping[Fold, Callable[[Sequence[float]], float]] = {Fold.SUM: sum, Fold.MAX: _largest}


def _is_overdue(row: Row, now: datetime, overdue_after: timedelta) -> bool:
    """Free to be taken, by its due time and by the end of its last lease, and not taken for so long."""
    if row.status not in LIVE or row.is_held or row.due_at is None:
        return False
    free_since = max(row.due_at, row.lease_until or row.due_at)
    return now - free_since > overdue_after
