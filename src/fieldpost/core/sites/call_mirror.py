"""The mirror of a site's cached calls: what a site reports, which report wins, and how far the mirror has come.

The site is the source of truth. Central keeps a copy that follows it, by two means that need nothing of each other:
*telemetry*, which the site sends as its calls change, and *reconciliation*, in which central asks for what has changed
since its cursor. Both carry the same rows, so it does not matter which brings one, how often, or in which order.

Order is by version, never by status or time: a parked call that an operator retries is `retrying` again, and its report
must win. A cursor is a change sequence of the site's buffer, which grows with every change and is never used twice.

A *round* is one reading of a buffer from its beginning on. A second one begins when the buffer turns out to be another
file (another incarnation), to have gone back (it was restored from a copy), or to have forgotten calls whose end
central had not heard of. What is told in a later round wins over an earlier one, whatever its version, since the buffer
as it is now is the truth; what was live in the mirror and is not told in the new round is *gone*: the site no longer
knows it, and nobody will ever report its end.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fieldpost.core.sites.message import CallStatus, Category

AGE_MAX = timedelta(days=3660)
LIVE = (CallStatus.PENDING, CallStatus.RETRYING)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReport:
    """One call as its site reports it; times are the site's, None where it gave none that can be read."""

    call_id: str
    category: Category
    target_summary: str
    status: CallStatus
    retry_count: int
    last_error: str | None
    http_status: int | None
    instance: str | None
    script: str | None
    execution_id: str | None
    parent_execution_id: str | None
    created_at: datetime | None
    updated_at: datetime | None
    terminal_at: datetime | None
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedCall:
    """One row of the mirror."""

    site: str
    report: CallReport
    first_seen_at: datetime
    """These by central's clock."""
    received_at: datetime
    begun_at: datetime
    """When it was issued: by the age that the site told, so that a wrong clock at the site does not matter."""
    ended_at: datetime | None
    gone_at: datetime | None
    """Since when the site no longer knows it."""

    @property
    def is_live(self) -> bool:
        return self.report.status in LIVE and self.gone_at is None


def wins(apply_telemetry: tuple[int, int], known: tuple[int, int] | None) -> bool:
    """Whether a report replaces what is known; both as (round, version)."""
    return known is None or apply_telemetry > known


def by_central(moment: datetime | None, sent_at: datetime | None, now: datetime) -> datetime:
    """When something was by central's clock that was at this moment by the site's, whose clock now shows `sent_at`."""
    if moment is None or sent_at is None:
        return now
    return now - min(max(sent_at - moment, timedelta(0)), AGE_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """How far the mirror of one site has come."""

    site: str
    incarnation: str
    cursor: int = 0
    """All changes up to this one are in the mirror."""
    high: int = 0
    """The newest change that central has heard of; a buffer whose newest lies before it has gone back."""
    round: int = 1
    is_rereading: bool = False
    forgotten: int = 0
    """What the site had purged when the round began: the newest change among it."""
    reconciled_at: datetime | None = None
    """When it was last known to be whole."""
    replaced_at: datetime | None = None
    """When the site's buffer was last found to be another one, or an older state of the same."""
    replaced_count: int = 0
    refused_count: int = 0
    """Rows that could not be taken, since they broke a rule."""
    last_refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Which changes a set of rows covers: all after the one and up to the other, of this buffer."""

    incarnation: str
    after: int
    until: int
    forgotten: int = 0
    """The newest change among what the site has purged."""


@dataclass(frozen=True, slots=True)
class BufferPosition:
    """What a site says of its buffer when it answers a reconciliation."""

    high: int
    """The newest change."""
    has_more: bool
    has_gone_back: bool = False
    """Whether that lies before the newest change which central had heard of when it asked."""


def apply_telemetry(mirror: Mirror | None, site: str, stretch: Stretch, now: datetime) -> Mirror:
    """The mirror after rows of this stretch came by telemetry."""
    if mirror is None:
        mirror = Mirror(site=site, incarnation=stretch.incarnation, forgotten=stretch.forgotten)
    elif mirror.incarnation != stretch.incarnation:
        mirror = _replaced(mirror, stretch, now)
    elif stretch.forgotten > max(mirror.cursor, mirror.forgotten):
        # What was purged beyond the cursor may have been live in the mirror, and nobody will tell of its end.
        mirror = reread(mirror, stretch.forgotten)
    # Only what joins on to the cursor moves it: else something is missing between, which reconciliation fetches.
    high = max(mirror.high, stretch.until)
    if stretch.after <= mirror.cursor < stretch.until:
        return replace(mirror, cursor=stretch.until, high=high)
    return replace(mirror, high=high)


def is_contiguous(mirror: Mirror, stretch: Stretch) -> bool:
    """Whether rows of this stretch may be taken into the mirror, as it is after them.

    What does not join on is left out: something is missing before it, and whoever tells it begins again at the cursor.
    """
    return stretch.incarnation == mirror.incarnation and stretch.after <= mirror.cursor


def apply_answer(
    mirror: Mirror | None, site: str, stretch: Stretch, standing: BufferPosition, now: datetime
) -> tuple[Mirror, bool]:
    """The mirror after rows of this stretch came in answer to a reconciliation, and whether it is whole now."""
    before = mirror or Mirror(site=site, incarnation=stretch.incarnation, forgotten=stretch.forgotten)
    if before.incarnation == stretch.incarnation and (standing.has_gone_back or standing.high < stretch.after):
        return _replaced(before, stretch, now), False
    after = apply_telemetry(before, site, stretch, now)
    after = replace(after, high=max(after.high, standing.high))
    # An answer from beyond the cursor leaves a gap: the question was asked before a new round began.
    has_gap = stretch.after > (before.cursor if before.round == after.round else 0)
    if standing.has_more or has_gap:
        return after, False
    return replace(after, is_rereading=False, reconciled_at=now), True


def ended_round(before: Mirror | None, after: Mirror, is_whole: bool) -> bool:
    """Whether a later round than the first came to its end: what was live and not told in it is gone."""
    return is_whole and before is not None and (before.is_rereading or after.round > before.round)


def reread(mirror: Mirror, forgotten: int) -> Mirror:
    """The beginning of a new round over the same buffer, which has purged so much by now."""
    return replace(mirror, cursor=0, round=mirror.round + 1, is_rereading=True, forgotten=forgotten)


def _replaced(mirror: Mirror, stretch: Stretch, now: datetime) -> Mirror:
    return replace(
        reread(mirror, stretch.forgotten),
        incarnation=stretch.incarnation,
        high=0,
        replaced_at=now,
        replaced_count=mirror.replaced_count + 1,
    )
