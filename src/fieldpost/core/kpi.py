"""Every KPI once: its name, unit, help, and its formula over plain rows, which is the oracle for the SQL.

A KPI is computed from the tables as they stand (no state of its own), for each source site and for all together. What
is held behind a breaker counts as stuck when it is old enough, since nobody has it yet; it is never overdue, since
nobody failed to take it. *Stuck* and *overdue* are shown and never acted on. Those of cached calls are computed from
the mirror, so they are as new as what their sites have reported.

To add a KPI: one entry below, and its column in `central/store/figures/kpis.py` or
`central/store/sites/cached_calls.py`. A contract test compares the two on random tables; API, command line, metrics,
history and the reference page read this registry.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from fieldpost.core.notification import LIVE, Status
from fieldpost.core.sites.call_mirror import LIVE as LIVE_CALLS
from fieldpost.core.sites.message import CallStatus

KpiValues = Mapping[str, float]
"""The KPIs of one site, or of all together, by name."""

SWEEPS_UNTIL_OVERDUE = 2


@dataclass(frozen=True, slots=True)
class KpiRow:
    """What of a notification counts for a KPI."""

    site: str
    status: Status
    created_at: datetime
    due_at: datetime | None = None
    is_held: bool = False
    lease_until: datetime | None = None
    delivered_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class KpiCall:
    """What of a cached call in the mirror counts for a KPI."""

    site: str
    status: CallStatus
    begun_at: datetime
    ended_at: datetime | None = None
    is_gone: bool = False
    """Whether its site no longer knows it."""


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


Formula = Callable[[Sequence[KpiRow], datetime, Thresholds], float]
CallFormula = Callable[[Sequence[KpiCall], datetime, Thresholds], float]


@dataclass(frozen=True, slots=True)
class Kpi:
    """A number computed from the table."""

    name: str
    unit: str
    help: str
    formula: Formula | None = None
    """Over notifications."""
    fold: Fold = Fold.SUM
    call_formula: CallFormula | None = None
    """Over the mirror of cached calls; a KPI has one of the two."""


def _queue_depth(rows: Sequence[KpiRow], _now: datetime, _by: Thresholds) -> float:
    return sum(row.status in LIVE for row in rows)


def _stuck(rows: Sequence[KpiRow], now: datetime, by: Thresholds) -> float:
    return sum(is_stuck(row.status, row.created_at, now, by.stuck_after) for row in rows)


def _overdue(rows: Sequence[KpiRow], now: datetime, by: Thresholds) -> float:
    return sum(_is_overdue(row, now, by.overdue_after) for row in rows)


def _parked(rows: Sequence[KpiRow], _now: datetime, _by: Thresholds) -> float:
    return sum(row.status is Status.PARKED for row in rows)


def _delivered(rows: Sequence[KpiRow], now: datetime, by: Thresholds) -> float:
    return sum(row.delivered_at is not None and now - row.delivered_at < by.delivered_window for row in rows)


def _oldest_pending_age(rows: Sequence[KpiRow], now: datetime, _by: Thresholds) -> float:
    return max(((now - row.created_at).total_seconds() for row in rows if row.status in LIVE), default=0.0)


def _calls_buffered(rows: Sequence[KpiCall], _now: datetime, _by: Thresholds) -> float:
    return sum(_is_live_call(row) for row in rows)


def _calls_stuck(rows: Sequence[KpiCall], now: datetime, by: Thresholds) -> float:
    return sum(_is_live_call(row) and now - row.begun_at > by.stuck_after for row in rows)


def _calls_parked(rows: Sequence[KpiCall], _now: datetime, _by: Thresholds) -> float:
    return sum(row.status is CallStatus.PARKED and not row.is_gone for row in rows)


def _calls_delivered(rows: Sequence[KpiCall], now: datetime, by: Thresholds) -> float:
    return sum(row.status is CallStatus.DELIVERED and _ended_lately(row, now, by) for row in rows)


def _calls_failed(rows: Sequence[KpiCall], now: datetime, by: Thresholds) -> float:
    return sum(row.status is CallStatus.FAILED and _ended_lately(row, now, by) for row in rows)


def _calls_oldest_pending_age(rows: Sequence[KpiCall], now: datetime, _by: Thresholds) -> float:
    return max(((now - row.begun_at).total_seconds() for row in rows if _is_live_call(row)), default=0.0)


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
    Kpi(
        "calls_buffered",
        "cached calls",
        "Cached calls that are pending or retrying at their sites, as these report.",
        call_formula=_calls_buffered,
    ),
    Kpi(
        "calls_stuck",
        "cached calls",
        "Cached calls that are pending or retrying for longer than `watch.stuck_after_s`.",
        call_formula=_calls_stuck,
    ),
    Kpi(
        "calls_parked",
        "cached calls",
        "Cached calls given up at their sites until an operator retries or discards them.",
        call_formula=_calls_parked,
    ),
    Kpi(
        "calls_delivered_last_interval",
        "cached calls",
        "Cached calls delivered within the last `watch.delivered_window_s`.",
        call_formula=_calls_delivered,
    ),
    Kpi(
        "calls_failed_last_interval",
        "cached calls",
        "Cached calls refused at once, and their scripts told so, within the last `watch.delivered_window_s`.",
        call_formula=_calls_failed,
    ),
    Kpi(
        "calls_oldest_pending_age_s",
        "seconds",
        "The age of the oldest cached call that is pending or retrying; 0 when there is none.",
        fold=Fold.MAX,
        call_formula=_calls_oldest_pending_age,
    ),
)
NAMES = tuple(kpi.name for kpi in KPIS)
NOTHING: KpiValues = dict.fromkeys(NAMES, 0.0)
"""The figures of a site that has no rows."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All KPIs at one moment."""

    as_of: datetime
    of_sites: Mapping[str, KpiValues]

    @property
    def total(self) -> KpiValues:
        """Of all sites together."""
        return fold(self.of_sites.values())


def is_stuck(status: Status, created_at: datetime, now: datetime, stuck_after: timedelta) -> bool:
    """Pending or retrying for longer than the threshold."""
    return status in LIVE and now - created_at > stuck_after


def compute(rows: Iterable[KpiRow], now: datetime, by: Thresholds, calls: Iterable[KpiCall] = ()) -> KpiValues:
    """All KPIs of these rows together."""
    found, found_calls = list(rows), list(calls)
    figures = dict(NOTHING)
    for kpi in KPIS:
        if kpi.formula is not None:
            figures[kpi.name] = float(kpi.formula(found, now, by))
        if kpi.call_formula is not None:
            figures[kpi.name] = float(kpi.call_formula(found_calls, now, by))
    return figures


def compute_by_site(
    rows: Iterable[KpiRow], now: datetime, by: Thresholds, calls: Iterable[KpiCall] = ()
) -> dict[str, KpiValues]:
    """All KPIs of each site that has rows."""
    of_sites: dict[str, tuple[list[KpiRow], list[KpiCall]]] = {}
    for row in rows:
        of_sites.setdefault(row.site, ([], []))[0].append(row)
    for call in calls:
        of_sites.setdefault(call.site, ([], []))[1].append(call)
    return {site: compute(found, now, by, found_calls) for site, (found, found_calls) in of_sites.items()}


def fold(of_sites: Iterable[KpiValues]) -> KpiValues:
    """The figures of all sites together, from those of each."""
    found = list(of_sites)
    return {kpi.name: float(_FOLDS[kpi.fold]([figures[kpi.name] for figures in found])) for kpi in KPIS}


def _largest(values: Sequence[float]) -> float:
    return max(values, default=0.0)


_FOLDS: Mapping[Fold, Callable[[Sequence[float]], float]] = {Fold.SUM: sum, Fold.MAX: _largest}


def _is_live_call(row: KpiCall) -> bool:
    return row.status in LIVE_CALLS and not row.is_gone


def _ended_lately(row: KpiCall, now: datetime, by: Thresholds) -> bool:
    return row.ended_at is not None and now - row.ended_at < by.delivered_window


def _is_overdue(row: KpiRow, now: datetime, overdue_after: timedelta) -> bool:
    """Free to be taken, by its arrival, its due time and the end of its last lease, and not taken for so long."""
    if row.status not in LIVE or row.is_held or row.due_at is None:
        return False
    free_since = max(row.created_at, row.due_at, row.lease_until or row.due_at)
    return now - free_since > overdue_after
