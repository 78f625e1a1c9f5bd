"""What becomes of a buffered message after a carrier tried it.

    answer of the carrier   a notification            a cached call
    Taken                   Clear                     Clear     the other side has it: the row goes
    Refused for good        Box, the rejected box     Fail      the script, still there, is told
                                                      Park      nobody is there to be told: a person must see it
    NotNow                  TryAgain                  TryAgain  due after the interval, or later if we were told so
                                                      Park      when the retries are used up

Nothing but `Taken` and `Refused` takes a notification out of the buffer, whatever the count: it never parks at a site.
The first attempt of a cached call, which its caller makes, is not counted; a limit of 0 retries means no limit.
"""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from fieldpost.core.text import truncate

WAIT_MAX = timedelta(hours=1)
"""However long we are told to wait, a message is tried again after this; a due time further away than this cannot have
been meant, so it is one that the clock has jumped away from."""
CALL_WAIT_MAX = timedelta(days=1)
"""The same for cached calls, whose interval and whose other side may well ask for hours."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The other side has it, durably; a duplicate counts as taken."""

    http_status: int | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The other side will never take it."""

    code: str
    error: str
    http_status: int | None = None


@dataclass(frozen=True, slots=True)
class NotNow:
    """It was tried and not taken, and may be another time."""

    error: str
    wait_s: float | None = None
    """How long the other side asked us to wait."""
    http_status: int | None = None


CarrierAnswer = Taken | Refused | NotNow


@dataclass(frozen=True, slots=True)
class Clear:
    """It has arrived: the row goes."""

    http_status: int | None = None


@dataclass(frozen=True, slots=True)
class Box:
    """A notification that central refused: to the rejected box."""

    code: str
    error: str


@dataclass(frozen=True, slots=True)
class TryAgain:
    """It stays and is due again."""

    due_at: datetime
    error: str
    is_counted: bool = True
    """Whether this attempt counts against the limit."""
    http_status: int | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """A cached call that was refused while its caller waits: the row goes, the caller is told."""

    code: str
    error: str
    http_status: int | None = None


@dataclass(frozen=True, slots=True)
class Park:
    """A cached call that waits for a person."""

    error: str
    is_counted: bool = True
    http_status: int | None = None


Decision = Clear | Box | TryAgain
CallDecision = Clear | TryAgain | Fail | Park

TAKEN, CLEAR = Taken(), Clear()
"""What nearly every notification comes to, by the hundred thousand."""


def answer_from(verdict: str, code: str | None, error: str | None, wait_s: float | None) -> CarrierAnswer:
    """The answer that a verdict of central means. A word that we do not know, of a newer central, keeps the message."""
    match verdict:
        case "accepted" | "duplicate":
            return TAKEN
        case "rejected":
            return Refused(code or "central.rejected", error or "central rejected it without saying why")
        case "later":
            return NotNow(error or code or "central cannot take it now", wait_s)
        case _:
            return NotNow(f"central gave a verdict that this version does not know: {verdict[:32]!r}", wait_s)


def decide(answer: CarrierAnswer, interval: timedelta, now: datetime) -> Decision:
    """What to do with a buffered notification after this answer; the interval is the site's one fixed interval."""
    match answer:
        case Taken():
            return CLEAR
        case Refused(code=code, error=error):
            return Box(truncate(code, 128), truncate(error))
        case NotNow(error=error, wait_s=wait_s):
            return TryAgain(now + wait(interval, wait_s), truncate(error))


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """How a cached call is tried again: what its external system's or connection's definition says."""

    interval: timedelta
    """Between two attempts: fixed, whatever the count; at most a day."""
    retries_max: int
    """Counted attempts after which it parks; 0 for no limit."""


def decide_call(
    answer: CarrierAnswer, policy: CallPolicy, now: datetime, *, retry_count: int, is_first: bool, is_caller: bool
) -> CallDecision:
    """What to do with a cached call after this answer.

    `is_first`: no attempt of it had an outcome before. `is_caller`: the script that issued it waits for this answer.
    """
    is_counted = not is_first
    match answer:
        case Taken(http_status=http_status):
            return Clear(http_status)
        case Refused(code=code, error=error, http_status=http_status):
            if is_caller:
                return Fail(truncate(code, 128), truncate(error), http_status)
            return Park(truncate(error), is_counted, http_status)
        case NotNow(error=error, wait_s=wait_s, http_status=http_status):
            if is_counted and 0 < policy.retries_max <= retry_count + 1:
                return Park(truncate(error), is_counted, http_status)
            due_at = now + wait(policy.interval, wait_s, CALL_WAIT_MAX)
            return TryAgain(due_at, truncate(error), is_counted, http_status)


def wait(interval: timedelta, wait_s: float | None, longest: timedelta = WAIT_MAX) -> timedelta:
    """The longer of the interval and what we were told, within bounds; nonsense counts as not told."""
    if wait_s is None or not math.isfinite(wait_s) or wait_s <= 0:
        return interval
    return max(interval, timedelta(seconds=min(wait_s, longest.total_seconds())))


def is_due(due_at: datetime | None, now: datetime, longest: timedelta = WAIT_MAX) -> bool:
    """Whether a message may be tried now. The rule behind the buffer's query, and its oracle in tests."""
    return due_at is None or due_at <= now or due_at > now + longest
