"""Health reports of a site, central's judgement of them (online, late or offline), and the samples kept as history.

A site reports its current state every half minute. Central judges the age of the last report by its own clock; the
site's clock is only displayed, as an offset. Late and offline are displayed and trigger nothing.

Each node of a pair reports on its own. The figures of the site are those of the leader, and the site is online while
either node is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

REPORT_EVERY_S = 30.0
LATE_AFTER = timedelta(seconds=45)
OFFLINE_AFTER = timedelta(seconds=60)
KEEP_EVERY = timedelta(hours=1)
"""A sample is kept at least this often, even without changes, so that a chart has a flat line."""
LAG_KEPT_S = 1.0
"""A pair whose copy is later than this, or was in the last sample, is sampled every time."""
DISK_CHANGE = 0.05
"""The relative change of free disk space that justifies a sample."""


class LinkState(StrEnum):
    ONLINE = "online"
    LATE = "late"
    OFFLINE = "offline"


class SiteCondition(StrEnum):
    """The condition of a site for its operators, worst first."""

    OFFLINE = "offline"
    LATE = "late"
    FAILING = "failing"
    """It reports but cannot forward."""
    STOPPED = "stopped"
    """Its agent reported that it was being stopped."""
    ONLINE = "online"
    NEW = "new"
    """It has never reported: it is being set up."""
    REVOKED = "revoked"
    """Its token was revoked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """The age limits of a report."""

    late_after: timedelta = LATE_AFTER
    offline_after: timedelta = OFFLINE_AFTER


@dataclass(frozen=True, slots=True, kw_only=True)
class PairReport:
    """The part of a report that a node of a pair adds."""

    known: int = 0
    """The highest epoch that the node knows."""
    is_leading: bool = False
    grounds: str | None = None
    """Why the leader may execute: `lease`, `peer` or `alone`; None if it may not."""
    peer_age_s: float | None = None
    """How long ago the node heard the other one; None if never since its start."""
    lag_changes: int = 0
    """How many changes of this node the other one lacks."""
    lag_s: float = 0.0
    """The age of the oldest of them."""
    differences: tuple[str, ...] = ()
    """The settings in which the nodes differ, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteReport:
    """The state that a site reports."""

    version: str = ""
    """The version of the agent."""
    backlog: Mapping[str, int] = field(default_factory=dict)
    """Waiting messages by category, without parked calls."""
    oldest_age_s: float = 0.0
    """The age of the oldest waiting message; 0 for an empty buffer."""
    parked: int = 0
    rejected: int = 0
    disk_free_bytes: int | None = None
    events: Mapping[str, int] = field(default_factory=dict)
    """Event log entries of the last hour, by severity."""
    is_forwarding: bool = True
    """Whether the last forwarding of notifications succeeded."""
    forward_error: str | None = None
    failing_for_s: float | None = None
    uptime_s: float = 0.0
    """The uptime of the agent."""
    is_stopping: bool = False
    """Whether this is the last report of an agent that is being stopped."""
    pair: PairReport | None = None
    """None for a site with one node."""

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
    """How far the site's clock was ahead when it reported; includes the transmission time of the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFigures:
    """A sample of a site's health, for its history."""

    state: str
    depth: int
    oldest_age_s: float
    parked: int
    rejected: int
    disk_free_bytes: int | None
    lag_changes: int | None = None
    """How many changes the standby of a pair lacked; None for a site with one node."""
    lag_s: float | None = None


def link_state(health: SiteHealth | None, now: datetime, by: Freshness) -> LinkState:
    """The link state by the age of the last report; a site that never reported, or whose agent stopped, is offline."""
    if health is None or health.report.is_stopping or now - health.received_at > by.offline_after:
        return LinkState.OFFLINE
    return LinkState.LATE if now - health.received_at > by.late_after else LinkState.ONLINE


def best_link(states: Iterable[LinkState]) -> LinkState:
    """The link state of a site whose nodes have these states: a site is online while either node is."""
    order = list(LinkState)
    return min(states, key=order.index, default=LinkState.OFFLINE)


def condition_of(link: LinkState, report: SiteReport | None, *, is_revoked: bool) -> SiteCondition:
    """The condition of a site, from its link state and its last report."""
    if is_revoked:
        return SiteCondition.REVOKED
    if report is None:
        return SiteCondition.NEW
    if report.is_stopping and link is LinkState.OFFLINE:
        return SiteCondition.STOPPED
    if link is not LinkState.ONLINE:
        return SiteCondition(link.value)
    return SiteCondition.ONLINE if report.is_forwarding else SiteCondition.FAILING


def figures_of(health: SiteHealth, link: LinkState) -> HealthFigures:
    """The sample of a site with this report and link state."""
    report = health.report
    return HealthFigures(
        state=link.value,
        depth=report.depth,
        oldest_age_s=round(report.oldest_age_s, 1),
        parked=report.parked,
        rejected=report.rejected,
        disk_free_bytes=report.disk_free_bytes,
        lag_changes=report.pair.lag_changes if report.pair else None,
        lag_s=round(report.pair.lag_s, 1) if report.pair else None,
    )


def is_worth_keeping(
    figures: HealthFigures, kept: HealthFigures | None, kept_at: datetime | None, now: datetime
) -> bool:
    """Whether these figures differ enough from the last sample; thousands of quiet sites must not fill the store."""
    if kept is None or kept_at is None or now - kept_at >= KEEP_EVERY:
        return True
    counted = ("state", "depth", "parked", "rejected")
    if any(getattr(figures, name) != getattr(kept, name) for name in counted):
        return True
    if figures.depth > 0:
        # The backlog is unchanged and grows older, which the chart must show.
        return True
    if max(figures.lag_s or 0.0, kept.lag_s or 0.0) >= LAG_KEPT_S:
        return True
    before, after = kept.disk_free_bytes, figures.disk_free_bytes
    if before is None or after is None:
        return before is not after
    return abs(after - before) > DISK_CHANGE * max(before, 1)


def report_from(stored: Mapping[str, Any]) -> SiteReport:
    """The report from its stored form, written by this or another version."""
    found = {f.name: stored[f.name] for f in fields(SiteReport) if f.name in stored}
    if (pair := found.get("pair")) is not None:
        known = {f.name: pair[f.name] for f in fields(PairReport) if f.name in pair}
        found["pair"] = PairReport(**known | {"differences": tuple(pair.get("differences", ()))})
    return SiteReport(**found)


def figures_from(stored: Mapping[str, Any]) -> HealthFigures:
    known: dict[str, Any] = {f.name: stored.get(f.name) for f in fields(HealthFigures)}
    return HealthFigures(**known)
