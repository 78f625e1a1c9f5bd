"""The KPI registry: name, unit, help and formula of each KPI. The formula is the oracle for the SQL.

KPIs are computed from the tables, without state, per source site and in total. A held notification counts as stuck
once it is old enough, since nobody has received it; it is never overdue, since no node failed to claim it. *Stuck* and
*overdue* are only displayed and trigger nothing. KPIs of cached calls are computed from the mirror, so they are as
recent as the last reports of the sites.

To add a KPI, add an entry below and a column in `central/store/figures/kpis.py` or
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
"""KPIs of one site or of all sites, by name."""

SWEEPS_UNTIL_OVERDUE = 2


@dataclass(frozen=True, slots=True)
class KpiRow:
    """The fields of a notification that KPIs use."""

    site: str
    status: Status
    created_at: datetime
    due_at: datetime | None = None
    is_held: bool = False
    lease_until: datetime | None = None
    delivered_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class KpiCall:
    """The fields of a mirrored cached call that KPIs use."""

    site: str
    status: CallStatus
    begun_at: datetime
    ended_at: datetime | None = None
    is_gone: bool = False
    """Whether the call no longer exists at its site."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Thresholds of the KPIs."""

    stuck_after: timedelta = timedelta(minutes=10)
    overdue_after: timedelta = timedelta(seconds=20)
    """The duration of SWEEPS_UNTIL_OVERDUE sweeps of the dispatcher."""
    delivered_window: timedelta = timedelta(minutes=1)


class Fold(StrEnum):
    """How the values of all sites combine into the total."""

    SUM = "sum"
    MAX = "max"


Formula = Callable[[Sequence[KpiRow], datetime, Thresholds], float]
CallFormula = Callable[[Sequence[KpiCall], datetime, Thresholds], float]


@dataclass(frozen=True, slots=True)
class Kpi:
    """A number computed from the tables."""

    name: str
    unit: str
    help: str
    formula: Formula | None = None
    """Over notifications."""
    fold: Fold = Fold.SUM
    call_formula: CallFormula | None = None
    """Over the mirror of cached calls; a KPI has exactly one of the two formulas."""


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
    Kpi("queue_depth", "notifications", "Notifications that are pending or retrying.", _queue_depth),
    Kpi("stuck", "notifications", "Notifications pending or retrying for longer than `watch.stuck_after_s`.", _stuck),
    Kpi(
        "overdue",
        "notifications",
        "Notifications due for longer than two sweeps (`dispatch.interval_s`) that no node has claimed, without held"
        " ones. Above 0, the nodes cannot keep up or none is dispatching.",
        _overdue,
    ),
    Kpi(
        "parked",
        "notifications",
        "Undelivered notifications that wait for an operator to retry or discard them.",
        _parked,
    ),
    Kpi(
        "delivered_last_interval",
        "notifications",
        "Notifications delivered within the last `watch.delivered_window_s`.",
        _delivered,
    ),
    Kpi(
        "oldest_pending_age_s",
        "seconds",
        "Age of the oldest notification that is pending or retrying; 0 without any.",
        _oldest_pending_age,
        Fold.MAX,
    ),
    Kpi(
        "calls_buffered",
        "cached calls",
        "Cached calls that are pending or retrying at their sites, as last reported.",
        call_formula=_calls_buffered,
    ),
    Kpi(
        "calls_stuck",
        "cached calls",
        "Cached calls pending or retrying for longer than `watch.stuck_after_s`.",
        call_formula=_calls_stuck,
    ),
    Kpi(
        "calls_parked",
        "cached calls",
        "Undelivered cached calls that wait for an operator to retry or discard them.",
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
        "Cached calls that failed permanently while their script waited, within the last `watch.delivered_window_s`.",
        call_formula=_calls_failed,
    ),
    Kpi(
        "calls_oldest_pending_age_s",
        "seconds",
        "Age of the oldest cached call that is pending or retrying; 0 without any.",
        fold=Fold.MAX,
        call_formula=_calls_oldest_pending_age,
    ),
)
NAMES = tuple(kpi.name for kpi in KPIS)
NOTHING: KpiValues = dict.fromkeys(NAMES, 0.0)
"""The KPIs of a site without rows."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All KPIs at one time."""

    as_of: datetime
    of_sites: Mapping[str, KpiValues]

    @property
    def total(self) -> KpiValues:
        """The KPIs of all sites together."""
        return fold(self.of_sites.values())


def is_stuck(status: Status, created_at: datetime, now: datetime, stuck_after: timedelta) -> bool:
    """Pending or retrying for longer than the threshold."""
    return status in LIVE and now - created_at > stuck_after


def compute(rows: Iterable[KpiRow], now: datetime, by: Thresholds, calls: Iterable[KpiCall] = ()) -> KpiValues:
    """Compute all KPIs over these rows."""
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
    """Compute all KPIs of each site that has rows."""
    of_sites: dict[str, tuple[list[KpiRow], list[KpiCall]]] = {}
    for row in rows:
        of_sites.setdefault(row.site, ([], []))[0].append(row)
    for call in calls:
        of_sites.setdefault(call.site, ([], []))[1].append(call)
    return {site: compute(found, now, by, found_calls) for site, (found, found_calls) in of_sites.items()}


def fold(of_sites: Iterable[KpiValues]) -> KpiValues:
    """Combine the KPIs of sites into the total."""
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
    """Whether a notification has been claimable (arrived, due, no valid lease) for longer than `overdue_after`."""
    if row.status not in LIVE or row.is_held or row.due_at is None:
        return False
    free_since = max(row.created_at, row.due_at, row.lease_until or row.due_at)
    return now - free_since > overdue_after
