"""The decision about a buffered message after an attempt.

    answer of the carrier   a notification            a cached call
    Taken                   Clear                     Clear     the receiver has it: delete the row
    Refused for good        Box, the rejected box     Fail      if the script waits: it gets the error
                                                      Park      if no script waits: a person must decide
    NotNow                  TryAgain                  TryAgain  due after the interval, or later if requested
                                                      Park      when the retries are used up

Only `Taken` and `Refused` take a notification out of the buffer, however often it failed: it never parks at a site.
The first attempt of a cached call, which its caller makes, is not counted; a limit of 0 retries means no limit.
"""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from fieldpost.core.text import truncate

WAIT_MAX = timedelta(hours=1)
"""The longest wait that the other side can request. A due time further away results from a jump of the clock."""
CALL_WAIT_MAX = timedelta(days=1)
"""The same for cached calls, whose interval and whose targets may require hours."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The receiver has stored it; a duplicate counts as taken."""

    http_status: int | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The receiver will never accept it."""

    code: str
    error: str
    http_status: int | None = None


@dataclass(frozen=True, slots=True)
class NotNow:
    """The attempt failed, but a later one may succeed."""

    error: str
    wait_s: float | None = None
    """The wait that the receiver requested."""
    http_status: int | None = None


CarrierAnswer = Taken | Refused | NotNow


@dataclass(frozen=True, slots=True)
class Clear:
    """Delivered: delete the row."""

    http_status: int | None = None


@dataclass(frozen=True, slots=True)
class Box:
    """Refused by central: move the notification to the rejected box."""

    code: str
    error: str


@dataclass(frozen=True, slots=True)
class TryAgain:
    """Keep the row and retry it later."""

    due_at: datetime
    error: str
    is_counted: bool = True
    """Whether this attempt counts against the limit."""
    http_status: int | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """Refused while the caller waits: delete the call and raise the error to the caller."""

    code: str
    error: str
    http_status: int | None = None


@dataclass(frozen=True, slots=True)
class Park:
    """Keep the call until a person retries or discards it."""

    error: str
    is_counted: bool = True
    http_status: int | None = None


Decision = Clear | Box | TryAgain
CallDecision = Clear | TryAgain | Fail | Park

TAKEN, CLEAR = Taken(), Clear()
"""Shared instances, since nearly every notification has this result."""


def answer_from(verdict: str, code: str | None, error: str | None, wait_s: float | None) -> CarrierAnswer:
    """The answer for a verdict of central. An unknown verdict, from a newer central, keeps the message."""
    match verdict:
        case "accepted" | "duplicate":
            return TAKEN
        case "rejected":
            return Refused(code or "central.rejected", error or "central rejected it without a reason")
        case "later":
            return NotNow(error or code or "central cannot take it now", wait_s)
        case _:
            return NotNow(f"central gave a verdict that this version does not know: {verdict[:32]!r}", wait_s)


def decide(answer: CarrierAnswer, interval: timedelta, now: datetime) -> Decision:
    """The decision about a notification after this answer; `interval` is the site's fixed retry interval."""
    match answer:
        case Taken():
            return CLEAR
        case Refused(code=code, error=error):
            return Box(truncate(code, 128), truncate(error))
        case NotNow(error=error, wait_s=wait_s):
            return TryAgain(now + wait(interval, wait_s), truncate(error))


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """The retry policy of a cached call, from the definition of its target."""

    interval: timedelta
    """Between two attempts; fixed, at most a day."""
    retries_max: int
    """Counted attempts after which it parks; 0 for no limit."""


def decide_call(
    answer: CarrierAnswer, policy: CallPolicy, now: datetime, *, retry_count: int, is_first: bool, is_caller: bool
) -> CallDecision:
    """The decision about a cached call after this answer.

    `is_first`: no earlier attempt had a result. `is_caller`: the script that issued the call waits for this answer.
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
    """The longer of the interval and the requested wait, at most `longest`; an invalid request is ignored."""
    if wait_s is None or not math.isfinite(wait_s) or wait_s <= 0:
        return interval
    return max(interval, timedelta(seconds=min(wait_s, longest.total_seconds())))


def is_due(due_at: datetime | None, now: datetime, longest: timedelta = WAIT_MAX) -> bool:
    """Whether a message may be tried now. The buffer's query implements this rule; tests compare the two."""
    return due_at is None or due_at <= now or due_at > now + longest
