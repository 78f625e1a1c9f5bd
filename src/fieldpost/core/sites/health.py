"""The health of a site as it reports it, and what central makes of it: online, late or offline, and a history.

A site reports every half minute, only ever its newest state. Central judges by the age of the last report, by its own
clock: what the site's clock says is shown beside it as an offset and decides nothing. Late and offline are shown, and
nothing is done about them.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

REPORT_EVERY_S = 30.0
LATE_AFTER = timedelta(seconds=45)
OFFLINE_AFTER = timedelta(seconds=60)
KEEP_EVERY = timedelta(hours=1)
"""A sample is kept this often also when nothing has changed, so that a flat line is a line."""
DISK_CHANGE = 0.05
"""By so much free disk space must change to be worth a sample by itself."""


class LinkState(StrEnum):
    ONLINE = "online"
    LATE = "late"
    OFFLINE = "offline"


class SiteCondition(StrEnum):
    """How a site stands for those who look after it, the worst first."""

    OFFLINE = "offline"
    LATE = "late"
    FAILING = "failing"
    """It reports, and cannot forward."""
    ONLINE = "online"
    NEW = "new"
    """It never reported: it is being set up."""
    REVOKED = "revoked"
    """It is not to be heard of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """How old a report may be."""

    late_after: timedelta = LATE_AFTER
    offline_after: timedelta = OFFLINE_AFTER


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteReport:
    """What a site says of itself."""

    version: str = ""
    """Of the agent."""
    backlog: Mapping[str, int] = field(default_factory=dict)
    """What waits in its buffer, by category; parked calls are not among it."""
    oldest_age_s: float = 0.0
    """For how long the oldest of that waits; 0 when nothing does."""
    parked: int = 0
    rejected: int = 0
    disk_free_bytes: int | None = None
    events: Mapping[str, int] = field(default_factory=dict)
    """Lines of its event log within the last hour, by severity."""
    is_forwarding: bool = True
    """Whether its last forward of notifications went well."""
    forward_error: str | None = None
    failing_for_s: float | None = None
    uptime_s: float = 0.0
    """How long the agent has been running."""

    @property
    def depth(self) -> int:
        return sum(self.backlog.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteHealth:
    """The newest report of a site."""

    site: str
    received_at: datetime
    report: SiteReport
    clock_offset_s: float
    """By how much the site's clock was ahead when it reported, the way of the report included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFigures:
    """What is kept of a site's health for its history."""

    state: str
    depth: int
    oldest_age_s: float
    parked: int
    rejected: int
    disk_free_bytes: int | None


def link_state(received_at: datetime | None, now: datetime, by: Freshness) -> LinkState:
    """How a site stands by its last report; one that never reported is offline."""
    if received_at is None or now - received_at > by.offline_after:
        return LinkState.OFFLINE
    return LinkState.LATE if now - received_at > by.late_after else LinkState.ONLINE


def standing(link: LinkState, report: SiteReport | None, *, is_revoked: bool) -> SiteCondition:
    """How a site stands by its link and what it reported last."""
    if is_revoked:
        return SiteCondition.REVOKED
    if report is None:
        return SiteCondition.NEW
    if link is not LinkState.ONLINE:
        return SiteCondition(link.value)
    return SiteCondition.ONLINE if report.is_forwarding else SiteCondition.FAILING


def figures_of(health: SiteHealth, now: datetime, by: Freshness) -> HealthFigures:
    report = health.report
    return HealthFigures(
        state=link_state(health.received_at, now, by).value,
        depth=report.depth,
        oldest_age_s=round(report.oldest_age_s, 1),
        parked=report.parked,
        rejected=report.rejected,
        disk_free_bytes=report.disk_free_bytes,
    )


def is_worth_keeping(
    figures: HealthFigures, kept: HealthFigures | None, kept_at: datetime | None, now: datetime
) -> bool:
    """Whether these figures tell something that the last sample did not: thousands of quiet sites must stay small."""
    if kept is None or kept_at is None or now - kept_at >= KEEP_EVERY:
        return True
    counted = ("state", "depth", "parked", "rejected")
    if any(getattr(figures, name) != getattr(kept, name) for name in counted):
        return True
    if figures.depth > 0:
        # Nothing leaves, and what waits grows older: that is a line too.
        return True
    before, after = kept.disk_free_bytes, figures.disk_free_bytes
    if before is None or after is None:
        return before is not after
    return abs(after - before) > DISK_CHANGE * max(before, 1)


def report_from(stored: Mapping[str, Any]) -> SiteReport:
    """A report as it was kept, by this version or another."""
    return SiteReport(**{f.name: stored[f.name] for f in fields(SiteReport) if f.name in stored})


def figures_from(stored: Mapping[str, Any]) -> HealthFigures:
    known: dict[str, Any] = {f.name: stored.get(f.name) for f in fields(HealthFigures)}
    return HealthFigures(**known)


def to_plain(value: SiteReport | HealthFigures) -> dict[str, Any]:
    """As JSON holds it."""
    return asdict(value)
