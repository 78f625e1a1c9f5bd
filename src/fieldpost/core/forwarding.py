"""What becomes of a buffered message after a carrier tried it.

    answer of the carrier        decision
    Taken                        Clear      the other side has it on disk: the row goes
    Refused for good             Box        to the rejected box, so that it neither blocks what is behind it nor is lost
    NotNow                       TryAgain   it stays, and is due again after the interval, or later if we were told so

Nothing but `Taken` and `Refused` takes a notification out of the buffer, whatever the count: it never parks at a site.
"""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from fieldpost.core.text import cut

WAIT_MAX = timedelta(hours=1)
"""However long we are told to wait, a message is tried again after this; a due time further away than this cannot have
been meant, so it is one that the clock has jumped away from."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The other side has it, durably; a duplicate counts as taken."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The other side will never take it."""

    code: str
    error: str


@dataclass(frozen=True, slots=True)
class NotNow:
    """It was tried and not taken, and may be another time."""

    error: str
    wait_s: float | None = None
    """How long the other side asked us to wait."""


Answer = Taken | Refused | NotNow


@dataclass(frozen=True, slots=True)
class Clear:
    pass


@dataclass(frozen=True, slots=True)
class Box:
    code: str
    error: str


@dataclass(frozen=True, slots=True)
class TryAgain:
    due_at: datetime
    error: str


Decision = Clear | Box | TryAgain


def answer_from(verdict: str, code: str | None, error: str | None, wait_s: float | None) -> Answer:
    """The answer that a verdict of central means. A word that we do not know, of a newer central, keeps the message."""
    match verdict:
        case "accepted" | "duplicate":
            return Taken()
        case "rejected":
            return Refused(code or "central.rejected", error or "central rejected it without saying why")
        case "later":
            return NotNow(error or code or "central cannot take it now", wait_s)
        case _:
            return NotNow(f"central gave a verdict that this version does not know: {verdict[:32]!r}", wait_s)


def decide(answer: Answer, interval: timedelta, now: datetime) -> Decision:
    """What to do with a buffered notification after this answer; the interval is the site's one fixed interval."""
    match answer:
        case Taken():
            return Clear()
        case Refused(code=code, error=error):
            return Box(cut(code, 128), cut(error))
        case NotNow(error=error, wait_s=wait_s):
            return TryAgain(now + wait(interval, wait_s), cut(error))


def wait(interval: timedelta, wait_s: float | None) -> timedelta:
    """The longer of the interval and what we were told, within bounds; nonsense counts as not told."""
    if wait_s is None or not math.isfinite(wait_s) or wait_s <= 0:
        return interval
    return max(interval, timedelta(seconds=min(wait_s, WAIT_MAX.total_seconds())))


def is_due(due_at: datetime | None, now: datetime) -> bool:
    """Whether a message may be tried now. The rule behind the buffer's query, and its oracle in tests."""
    return due_at is None or due_at <= now or due_at > now + WAIT_MAX
