"""Central's mirror of a site's cached calls: reports, their precedence, and the progress of the mirror.

The site is the source of truth. Central keeps a copy by two independent means: *telemetry*, which the site sends as its
calls change, and *reconciliation*, in which central asks for changes after its cursor. Both carry the same rows, so a
row may arrive by either, several times and in any order.

Reports are ordered by version, never by status or time: a parked call that an operator retries is `retrying` again, and
that report must win. A cursor is a change sequence of the site's buffer, which increases with every change and is never
reused.

A *round* is one reading of a buffer from its beginning. A new round starts if the buffer is a different file (another
incarnation), has gone back (it was restored from a copy), or has purged calls whose end central does not know. Reports
of a later round win over earlier ones regardless of version, because the present buffer is the truth. A call that was
live in the mirror and is not reported in the new round is *gone*: the site no longer has it and will never report its
end.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fieldpost.core.sites.message import CallReport, CallStatus

AGE_MAX = timedelta(days=3660)
LIVE = (CallStatus.PENDING, CallStatus.RETRYING)


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedCall:
    """One row of the mirror."""

    site: str
    report: CallReport
    first_seen_at: datetime
    """By central's clock, like the times below."""
    received_at: datetime
    begun_at: datetime
    """When it was issued, computed from the age that the site reports, so that a wrong clock does not matter."""
    ended_at: datetime | None
    gone_at: datetime | None
    """When central found that the site no longer has it."""

    @property
    def is_live(self) -> bool:
        return self.report.status in LIVE and self.gone_at is None


def wins(reported: tuple[int, int], known: tuple[int, int] | None) -> bool:
    """Whether a report replaces the known one; both as (round, version)."""
    return known is None or reported > known


def by_central(moment: datetime | None, sent_at: datetime | None, now: datetime) -> datetime:
    """A time of the site's clock, which shows `sent_at` now, converted to central's clock."""
    if moment is None or sent_at is None:
        return now
    return now - min(max(sent_at - moment, timedelta(0)), AGE_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """The progress of one site's mirror."""

    site: str
    incarnation: str
    cursor: int = 0
    """The mirror has all changes up to this one."""
    high: int = 0
    """The newest change that central knows of; a buffer whose newest change is lower has gone back."""
    round: int = 1
    is_rereading: bool = False
    forgotten: int = 0
    """The newest purged change when the round started."""
    reconciled_at: datetime | None = None
    """When it was last complete."""
    replaced_at: datetime | None = None
    """When the site's buffer was last replaced or restored to an older state."""
    replaced_count: int = 0
    refused_count: int = 0
    """Rows that were invalid."""
    last_refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """The half-open range (after, until] of changes that a batch covers."""

    incarnation: str
    after: int
    until: int
    forgotten: int = 0
    """The newest change that the site has purged."""


@dataclass(frozen=True, slots=True)
class BufferPosition:
    """The state of a site's buffer in its answer to a reconciliation."""

    high: int
    """The newest change."""
    has_more: bool
    has_gone_back: bool = False
    """Whether `high` is below the newest change that central knew when it asked."""


def apply_telemetry(mirror: Mirror | None, site: str, stretch: Stretch, now: datetime) -> Mirror:
    """The mirror after rows of this range arrived by telemetry."""
    if mirror is None:
        mirror = Mirror(site=site, incarnation=stretch.incarnation, forgotten=stretch.forgotten)
    elif mirror.incarnation != stretch.incarnation:
        mirror = _replaced(mirror, stretch, now)
    elif stretch.forgotten > max(mirror.cursor, mirror.forgotten):
        # Rows purged beyond the cursor may be live in the mirror, and their end will never be reported.
        mirror = reread(mirror, stretch.forgotten)
    # Only a range that continues at the cursor moves it; reconciliation fetches gaps.
    high = max(mirror.high, stretch.until)
    if stretch.after <= mirror.cursor < stretch.until:
        return replace(mirror, cursor=stretch.until, high=high)
    return replace(mirror, high=high)


def is_contiguous(mirror: Mirror, stretch: Stretch) -> bool:
    """Whether rows of this range may enter the mirror. If there is a gap, the sender starts again at the cursor.

    `mirror` is the state after `apply_telemetry` or `apply_answer`, and so of the same incarnation.
    """
    return stretch.after <= mirror.cursor


def apply_answer(
    mirror: Mirror | None, site: str, stretch: Stretch, position: BufferPosition, now: datetime
) -> tuple[Mirror, bool]:
    """The mirror after rows of this range answered a reconciliation, and whether it is complete now."""
    before = mirror or Mirror(site=site, incarnation=stretch.incarnation, forgotten=stretch.forgotten)
    if before.incarnation == stretch.incarnation and (position.has_gone_back or position.high < stretch.after):
        return _replaced(before, stretch, now), False
    after = apply_telemetry(before, site, stretch, now)
    after = replace(after, high=max(after.high, position.high))
    # An answer beyond the cursor leaves a gap: the request was made before a new round started.
    has_gap = stretch.after > (before.cursor if before.round == after.round else 0)
    if position.has_more or has_gap:
        return after, False
    return replace(after, is_rereading=False, reconciled_at=now), True


def ended_round(before: Mirror | None, after: Mirror, is_whole: bool) -> bool:
    """Whether a round after the first has ended: calls that were live and not reported in it are gone."""
    return is_whole and before is not None and (before.is_rereading or after.round > before.round)


def reread(mirror: Mirror, forgotten: int) -> Mirror:
    """The start of a new round over the same buffer; `forgotten` is its newest purged change."""
    return replace(mirror, cursor=0, round=mirror.round + 1, is_rereading=True, forgotten=forgotten)


def _replaced(mirror: Mirror, stretch: Stretch, now: datetime) -> Mirror:
    return replace(
        reread(mirror, stretch.forgotten),
        incarnation=stretch.incarnation,
        high=0,
        replaced_at=now,
        replaced_count=mirror.replaced_count + 1,
    )
