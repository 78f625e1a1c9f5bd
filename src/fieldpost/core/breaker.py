"""The circuit breaker of one channel or subscription.

    closed ──failures_max in a row──▶ open ──after break_s, one probe──▶ half_open ──success──▶ closed
      ▲ └ counting: "monitored"        ▲ └ "blocked": no call is made        │
      └───────── any success, reset ───┴───────────── failure ───────────────┘

Theory of operation. The state is a row that all central nodes share. While it is open, rows behind it are held: no
call, no attempt spent. When the block ends, one node takes the probe by compare-and-set on the row's version; a probe
whose owner died lapses with its lease, and another node may take it. Failures older than `lapse_s` are forgotten.
Everything here is pure: a breaker and the time in, a breaker out; the same object back means nothing changed.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache

from fieldpost.core.outcome import Held, Outcome, Uncertain
from fieldpost.core.text import truncate


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When a breaker opens and for how long."""

    failures_max: int = 5
    """So many failures in a row open it."""
    break_s: float = 60.0
    """How long it stays open before one probe."""
    lapse_s: float = 1800.0
    """Failures are forgotten when none came for so long."""
    hold_s: float = 10.0
    """How long a row waits after a failure that did not open the breaker."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """One row of `breakers`."""

    key: str
    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    first_failure_at: datetime | None = None
    last_failure_at: datetime | None = None
    last_error: str | None = None
    open_until: datetime | None = None
    probe_owner: str | None = None
    probe_until: datetime | None = None
    version: int = 0

    @property
    def health(self) -> str:
        """In the console's words: healthy, monitored (counting), blocked."""
        if self.state is not BreakerState.CLOSED:
            return "blocked"
        return "monitored" if self.failures else "healthy"


@lru_cache(maxsize=1024)
def channel_key(channel_name: str) -> str:
    return f"channel:{channel_name}"


def verdict(outcome: Outcome) -> bool | None:
    """What an outcome says about the channel: it works, it does not, or nothing.

    A refused message shows that the channel answers; a send without an answer shows nothing either way.
    """
    if isinstance(outcome, Held):
        return False
    return None if isinstance(outcome, Uncertain) else True


def record(breaker: Breaker, outcome: Outcome, policy: BreakerPolicy, now: datetime) -> Breaker:
    """The breaker after an attempt came to this outcome."""
    match verdict(outcome):
        case True:
            return reset(breaker)
        case False:
            return _failed(breaker, outcome.error or "", policy, now)
        case None if breaker.state is BreakerState.HALF_OPEN:
            return _failed(breaker, outcome.error or "", policy, now)
        case _:
            return breaker


def is_blocked(breaker: Breaker) -> bool:
    """Whether ordinary attempts must wait (a probe is taken apart, by `take_probe`)."""
    return breaker.state is not BreakerState.CLOSED


def take_probe(breaker: Breaker, owner: str, now: datetime, lease_s: float) -> Breaker | None:
    """The breaker half-open with this owner's probe, or None when it is not time or another's probe is out."""
    match breaker.state:
        case BreakerState.OPEN if breaker.open_until is not None and now >= breaker.open_until:
            pass
        case BreakerState.HALF_OPEN if breaker.probe_until is not None and now >= breaker.probe_until:
            pass
        case _:
            return None
    return replace(
        breaker, state=BreakerState.HALF_OPEN, probe_owner=owner, probe_until=now + timedelta(seconds=lease_s)
    )


def give_back_probe(breaker: Breaker, owner: str, now: datetime) -> Breaker:
    """The probe was taken but nothing was there to send: open again, due for a probe at once."""
    if breaker.state is not BreakerState.HALF_OPEN or breaker.probe_owner != owner:
        return breaker
    return replace(breaker, state=BreakerState.OPEN, open_until=now, probe_owner=None, probe_until=None)


def probe_now(breaker: Breaker, now: datetime) -> Breaker:
    """Somebody changed what it guards: due for a probe at once, instead of when its block ends."""
    if breaker.state is not BreakerState.OPEN or breaker.open_until is None or breaker.open_until <= now:
        return breaker
    return replace(breaker, open_until=now)


def next_probe(breaker: Breaker, policy: BreakerPolicy, now: datetime) -> datetime:
    """When a row that is held now will be looked at again."""
    match breaker.state:
        case BreakerState.OPEN if breaker.open_until is not None:
            return breaker.open_until
        case BreakerState.HALF_OPEN if breaker.probe_until is not None:
            return breaker.probe_until
        case _:
            return now + timedelta(seconds=policy.hold_s)


def reset(breaker: Breaker) -> Breaker:
    """Closed and forgotten, by a success or by an operator; the last error stays for who looks."""
    if breaker.state is BreakerState.CLOSED and breaker.failures == 0:
        return breaker
    return Breaker(key=breaker.key, last_error=breaker.last_error, version=breaker.version)


def _failed(breaker: Breaker, error: str, policy: BreakerPolicy, now: datetime) -> Breaker:
    error = truncate(error)
    if breaker.state is BreakerState.OPEN:
        # A result of an attempt that began before it opened: news for the record, not a reason to block longer.
        return replace(breaker, last_error=error, last_failure_at=now, failures=breaker.failures + 1)
    is_stale = breaker.last_failure_at is not None and (now - breaker.last_failure_at).total_seconds() > policy.lapse_s
    failures = 1 if is_stale and breaker.state is BreakerState.CLOSED else breaker.failures + 1
    counted = replace(
        breaker,
        failures=failures,
        first_failure_at=now if failures == 1 or breaker.first_failure_at is None else breaker.first_failure_at,
        last_failure_at=now,
        last_error=error,
        probe_owner=None,
        probe_until=None,
    )
    if breaker.state is BreakerState.HALF_OPEN or failures >= policy.failures_max:
        return replace(counted, state=BreakerState.OPEN, open_until=now + timedelta(seconds=policy.break_s))
    return counted
