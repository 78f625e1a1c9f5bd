"""The KPI registry: name, unit, help and formula of each KPI. The formula is the oracle for the SQL.

KPIs are computed from the tables, without state, per source site and in total, and by kind: notifications to lists,
webhooks (`webhooks_…`) and cached calls (`calls_…`), so that a failing receiver does not hide a failing mail server. A
held notification to a list counts as stuck once it is old enough, since nobody has received it; it is never overdue,
since no node failed to claim it. A webhook is retried for days, so one that is held or waits for its retry time is not
stuck. *Stuck* and *overdue* are only displayed and trigger nothing. KPIs of cached calls are computed from the mirror,
so they are as recent as the last reports of the sites.

To add a KPI, add an entry below and a column in `central/store/figures/kpis.py` or
`central/store/sites/cached_calls.py`. A contract test compares the two on random tables; API, command line, metrics,
history and the reference page read this registry.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from fieldpost.core.notification import LIVE, NotificationKind, Status, Summary
from fieldpost.core.sites.call_mirror import LIVE as LIVE_CALLS
from fieldpost.core.sites.message import CallStatus

KpiValues = Mapping[str, float]
"""KPIs of one site or of all sites, by name."""

SWEEPS_UNTIL_OVERDUE = 2
WEBHOOKS = "webhooks_"
"""The prefix of the KPIs of webhooks."""
_PREFIXES = {"": NotificationKind.LIST, WEBHOOKS: NotificationKind.WEBHOOK}


@dataclass(frozen=True, slots=True)
class KpiRow:
    """The fields of a notification that KPIs use."""

    site: str
    status: Status
    created_at: datetime
    cycle_started_at: datetime
    """When it arrived, or when an operator last retried it."""
    due_at: datetime | None = None
    is_held: bool = False
    is_limited: bool = False
    """Held because of a rate or a provider that asked to wait."""
    lease_until: datetime | None = None
    delivered_at: datetime | None = None
    type: str = "email"

    @property
    def kind(self) -> NotificationKind:
        return NotificationKind.of_type(self.type)


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


Formula = Callable[[KpiRow, datetime, Thresholds], float]
CallFormula = Callable[[KpiCall, datetime, Thresholds], float]


@dataclass(frozen=True, slots=True)
class Kpi:
    """A number computed from the tables: the fold of the values of all rows."""

    name: str
    unit: str
    help: str
    formula: Formula | None = None
    """The value of one notification."""
    fold: Fold = Fold.SUM
    call_formula: CallFormula | None = None
    """The value of one mirrored cached call; a KPI has exactly one of the two formulas."""


def is_stuck(row: KpiRow | Summary, now: datetime, stuck_after: timedelta) -> bool:
    """Pending or retrying for longer than the threshold, since it arrived or an operator last retried it.

    A webhook that is held or waits for its retry time is not stuck, nor is a notification that waits for a rate.
    """
    if row.status not in LIVE or row.is_limited or now - row.cycle_started_at <= stuck_after:
        return False
    waits = row.is_held or (row.due_at is not None and row.due_at > now)
    return not waits or NotificationKind.of_type(row.type) is not NotificationKind.WEBHOOK


def _is_overdue(row: KpiRow, now: datetime, by: Thresholds) -> bool:
    """Whether a notification has been claimable (arrived, due, no valid lease) for longer than `overdue_after`."""
    if row.status not in LIVE or row.is_held or row.due_at is None:
        return False
    free_since = max(row.created_at, row.due_at, row.lease_until or row.due_at)
    return now - free_since > by.overdue_after


def _is_live_call(row: KpiCall) -> bool:
    return row.status in LIVE_CALLS and not row.is_gone


def _ended_lately(row: KpiCall, status: CallStatus, now: datetime, by: Thresholds) -> bool:
    return row.status is status and row.ended_at is not None and now - row.ended_at < by.delivered_window


_STUCK_HELP = (
    " pending or retrying for longer than `watch.stuck_after_s`, counted from their arrival or the last retry by an"
    " operator."
)
_OF_LISTS: tuple[Kpi, ...] = (
    Kpi(
        "queue_depth",
        "notifications",
        "Notifications to lists that are pending or retrying.",
        lambda row, _now, _by: row.status in LIVE,
    ),
    Kpi(
        "stuck",
        "notifications",
        f"Notifications to lists{_STUCK_HELP}",
        lambda row, now, by: is_stuck(row, now, by.stuck_after),
    ),
    Kpi(
        "overdue",
        "notifications",
        "Notifications to lists due for longer than two sweeps (`dispatch.interval_s`) that no node has claimed,"
        " without held ones. Above 0, the nodes cannot keep up or none is dispatching.",
        _is_overdue,
    ),
    Kpi(
        "parked",
        "notifications",
        "Undelivered notifications to lists that wait for an operator to retry or discard them.",
        lambda row, _now, _by: row.status is Status.PARKED,
    ),
    Kpi(
        "delivered_last_interval",
        "notifications",
        "Notifications to lists delivered within the last `watch.delivered_window_s`.",
        lambda row, now, by: row.delivered_at is not None and now - row.delivered_at < by.delivered_window,
    ),
    Kpi(
        "oldest_pending_age_s",
        "seconds",
        "Age of the oldest notification to a list that is pending or retrying; 0 without any.",
        lambda row, now, _by: (now - row.created_at).total_seconds() if row.status in LIVE else 0.0,
        Fold.MAX,
    ),
)
_WEBHOOK_HELP = {
    "queue_depth": "Webhooks that are pending or retrying.",
    "stuck": f"Webhooks{_STUCK_HELP} Webhooks that are held or wait for their retry time are not stuck.",
    "overdue": "Webhooks due for longer than two sweeps (`dispatch.interval_s`) that no node has claimed, without held"
    " ones.",
    "parked": "Undelivered webhooks that wait for an operator to retry or discard them.",
    "delivered_last_interval": "Webhooks delivered within the last `watch.delivered_window_s`.",
    "oldest_pending_age_s": "Age of the oldest webhook that is pending or retrying, held ones included; 0 without any.",
}


def _of_kind(kpi: Kpi, kind: NotificationKind) -> Kpi:
    """The KPI over the notifications of one kind."""
    formula = kpi.formula
    assert formula is not None

    def restricted(row: KpiRow, now: datetime, by: Thresholds) -> float:
        return formula(row, now, by) if row.kind is kind else 0.0

    if kind is NotificationKind.LIST:
        return replace(kpi, formula=restricted)
    unit = "webhooks" if kpi.unit == "notifications" else kpi.unit
    return Kpi(f"{WEBHOOKS}{kpi.name}", unit, _WEBHOOK_HELP[kpi.name], restricted, kpi.fold)


KPIS: tuple[Kpi, ...] = (
    *(_of_kind(kpi, NotificationKind.LIST) for kpi in _OF_LISTS),
    *(_of_kind(kpi, NotificationKind.WEBHOOK) for kpi in _OF_LISTS),
    Kpi(
        "calls_buffered",
        "cached calls",
        "Cached calls that are pending or retrying at their sites, as last reported.",
        call_formula=lambda row, _now, _by: _is_live_call(row),
    ),
    Kpi(
        "calls_stuck",
        "cached calls",
        "Cached calls pending or retrying for longer than `watch.stuck_after_s`.",
        call_formula=lambda row, now, by: _is_live_call(row) and now - row.begun_at > by.stuck_after,
    ),
    Kpi(
        "calls_parked",
        "cached calls",
        "Undelivered cached calls that wait for an operator to retry or discard them.",
        call_formula=lambda row, _now, _by: row.status is CallStatus.PARKED and not row.is_gone,
    ),
    Kpi(
        "calls_delivered_last_interval",
        "cached calls",
        "Cached calls delivered within the last `watch.delivered_window_s`.",
        call_formula=lambda row, now, by: _ended_lately(row, CallStatus.DELIVERED, now, by),
    ),
    Kpi(
        "calls_failed_last_interval",
        "cached calls",
        "Cached calls that failed permanently while their script waited, within the last `watch.delivered_window_s`.",
        call_formula=lambda row, now, by: _ended_lately(row, CallStatus.FAILED, now, by),
    ),
    Kpi(
        "calls_oldest_pending_age_s",
        "seconds",
        "Age of the oldest cached call that is pending or retrying; 0 without any.",
        fold=Fold.MAX,
        call_formula=lambda row, now, _by: (now - row.begun_at).total_seconds() if _is_live_call(row) else 0.0,
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


def compute(rows: Iterable[KpiRow], now: datetime, by: Thresholds, calls: Iterable[KpiCall] = ()) -> KpiValues:
    """Compute all KPIs over these rows."""
    found, found_calls = list(rows), list(calls)
    values: dict[str, float] = {}
    for kpi in KPIS:
        of_rows = [kpi.formula(row, now, by) for row in found] if kpi.formula else []
        of_calls = [kpi.call_formula(call, now, by) for call in found_calls] if kpi.call_formula else []
        values[kpi.name] = _fold(kpi, of_rows + of_calls)
    return values


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
    return {kpi.name: _fold(kpi, [figures[kpi.name] for figures in found]) for kpi in KPIS}


def of_kind(figures: KpiValues, kind: NotificationKind | None = None) -> KpiValues:
    """The KPIs of notifications of one kind, or of both together, under their names without prefix; others as given."""
    prefixes = [prefix for prefix, of in _PREFIXES.items() if kind in (None, of)]
    found = {kpi.name: _fold(kpi, [figures[prefix + kpi.name] for prefix in prefixes]) for kpi in _OF_LISTS}
    return {**figures, **found}


def _fold(kpi: Kpi, values: Sequence[float]) -> float:
    return float(sum(values) if kpi.fold is Fold.SUM else max(values, default=0.0))
