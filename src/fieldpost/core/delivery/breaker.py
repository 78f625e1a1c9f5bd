"""The circuit breaker of one channel, list or subscription.

    closed ──failures_max in a row──▶ open ──after break_s, one probe──▶ half_open ──success──▶ closed
      ▲ └ counting: "monitored"        ▲ └ "blocked": no call is made        │
      └───────── any success, reset ───┴───────────── failure ───────────────┘

Theory of operation. The state is a row that all central nodes share. While the breaker is open, notifications behind
it are held: no call is made and no attempt is used. When `break_s` has passed, one node takes the probe by
compare-and-set on the row's version. If that node dies, the probe's lease expires and another node may take it.
A breaker that is not called for `lapse_s` lapses: it is
closed and counts from the start. `failing_since` survives all of this; only a success ends it. After a block, held
notifications are released in steps that double with each success (`release_size`), so that a receiver that has just
recovered is not flooded. `wait_until` is a hold of the whole path without a failure count: the receiver asked to wait,
or central could not make the call.

The functions here are pure: they take a breaker and the time and return a
breaker; returning the same object means that nothing changed.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache

from fieldpost.core.delivery.holds import HoldKind
from fieldpost.core.delivery.outcome import Evidence
from fieldpost.core.frozen import frozen
from fieldpost.core.text import truncate

RELEASE_SIZE_MAX = 1024
"""From this step on held notifications are released in full batches."""


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When a breaker opens and for how long."""

    failures_max: int = 5
    """The number of consecutive failures that opens the breaker."""
    break_s: float = 60.0
    """How long the breaker stays open before a probe."""
    lapse_s: float = 1800.0
    """Failures are forgotten after this time without another."""
    hold_s: float = 10.0
    """How long a notification waits after a failure that did not open the breaker."""


@frozen
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
    failing_since: datetime | None = None
    """Since when no attempt has succeeded; None while it works."""
    warned_percent: int = 0
    """The last warning given, as the part of the time after which the path is disabled."""
    release_size: int = 0
    """How many held notifications may be claimable at once; 0 for any number."""
    wait_until: datetime | None = None
    """No attempt is made before this time."""
    wait_kind: str | None = None
    """The kind of hold of the notifications meanwhile."""
    wait_reason: str | None = None
    probed_key: str | None = None
    """The delivery key of the last probe: the next one goes to another, so that one bad list delays no others."""

    @property
    def health(self) -> str:
        """The state as the console shows it: healthy, monitored (counting failures) or blocked."""
        if self.state is not BreakerState.CLOSED:
            return "blocked"
        return "monitored" if self.failures else "healthy"


CHANNEL_KEY = "channel:"


@lru_cache(maxsize=1024)
def channel_key(channel_name: str) -> str:
    return CHANNEL_KEY + channel_name


def record(breaker: Breaker, evidence: Evidence, error: str, policy: BreakerPolicy, now: datetime) -> Breaker:
    """The breaker after an attempt with this evidence. A probe without an answer counts as failed."""
    match evidence:
        case Evidence.WORKS:
            return record_success(breaker)
        case Evidence.NONE if breaker.state is not BreakerState.HALF_OPEN:
            return breaker
        case Evidence.FAILS | Evidence.NONE:
            return _failed(breaker, error, policy, now)


def record_success(breaker: Breaker) -> Breaker:
    """The breaker after an attempt that showed that the path works; the same object if that changes nothing."""
    return note_tried(_succeeded(breaker))


def note_tried(breaker: Breaker) -> Breaker:
    """The breaker, with a row from now on: one without has never been tried. Nothing else changes."""
    return breaker if breaker.version else replace(breaker, version=1)


def is_blocked(breaker: Breaker) -> bool:
    """Whether ordinary attempts must wait. Probes are taken separately, by `take_probe`."""
    return breaker.state is not BreakerState.CLOSED


def take_probe(breaker: Breaker, owner: str, now: datetime, lease_s: float) -> Breaker | None:
    """The half-open breaker with this owner's probe, or None if no probe is due or another one is running."""
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


def note_probe(breaker: Breaker, delivery_key: str) -> Breaker:
    """The breaker whose probe is a notification with this delivery key."""
    return replace(breaker, probed_key=delivery_key)


def give_back_probe(breaker: Breaker, owner: str, now: datetime) -> Breaker:
    """Return an unused probe because there was nothing to send: the breaker is open and due for a probe at once."""
    if breaker.state is not BreakerState.HALF_OPEN or breaker.probe_owner != owner:
        return breaker
    return replace(breaker, state=BreakerState.OPEN, open_until=now, probe_owner=None, probe_until=None)


def probe_now(breaker: Breaker, now: datetime) -> Breaker:
    """Make the next probe due at once, because the channel's settings have changed."""
    if breaker.state is not BreakerState.OPEN or breaker.open_until is None or breaker.open_until <= now:
        return breaker
    return replace(breaker, open_until=now)


def next_probe(breaker: Breaker, policy: BreakerPolicy, now: datetime) -> datetime:
    """When a notification held now is due again."""
    match breaker.state:
        case BreakerState.OPEN if breaker.open_until is not None:
            return breaker.open_until
        case BreakerState.HALF_OPEN if breaker.probe_until is not None:
            return breaker.probe_until
        case _:
            return now + timedelta(seconds=policy.hold_s)


def lapse(breaker: Breaker, policy: BreakerPolicy, now: datetime) -> Breaker:
    """Close a breaker that has not been called for `lapse_s`: its state says nothing about the present."""
    is_probed = (
        breaker.state is BreakerState.HALF_OPEN and breaker.probe_until is not None and breaker.probe_until > now
    )
    if is_probed or breaker.last_failure_at is None or not _is_stale(breaker, policy, now):
        return breaker
    return reset(breaker)


def wait(breaker: Breaker, until: datetime, kind: HoldKind, reason: str) -> Breaker:
    """Make no attempt before `until`; a wait that ends later stays."""
    if breaker.wait_until is not None and breaker.wait_until >= until:
        return breaker
    return replace(breaker, wait_until=until, wait_kind=kind.value, wait_reason=truncate(reason))


def is_waiting(breaker: Breaker, now: datetime) -> bool:
    """Whether the path's notifications wait for a time."""
    return breaker.wait_until is not None and breaker.wait_until > now


def reset(breaker: Breaker) -> Breaker:
    """Close the breaker, by an operator or because it lapsed; the last error and `failing_since` stay."""
    if breaker.state is BreakerState.CLOSED and breaker.failures == 0 and breaker.wait_until is None:
        return breaker
    return Breaker(
        key=breaker.key,
        last_error=breaker.last_error,
        version=breaker.version,
        failing_since=breaker.failing_since,
        warned_percent=breaker.warned_percent,
        release_size=breaker.release_size if breaker.state is BreakerState.CLOSED else 1,
    )


def _succeeded(breaker: Breaker) -> Breaker:
    is_closed = breaker.state is BreakerState.CLOSED
    size = breaker.release_size * 2 if is_closed else 1
    after = Breaker(
        key=breaker.key,
        last_error=breaker.last_error,
        version=breaker.version,
        release_size=size if size < RELEASE_SIZE_MAX else 0,
        wait_until=breaker.wait_until,
        wait_kind=breaker.wait_kind,
        wait_reason=breaker.wait_reason,
    )
    return breaker if after == breaker else after


def _is_stale(breaker: Breaker, policy: BreakerPolicy, now: datetime) -> bool:
    at = breaker.last_failure_at
    return at is not None and (now - at).total_seconds() > policy.lapse_s


def _failed(breaker: Breaker, error: str, policy: BreakerPolicy, now: datetime) -> Breaker:
    error = truncate(error)
    if breaker.state is BreakerState.OPEN:
        # The attempt started before the breaker opened: record the failure but do not extend the block.
        return replace(breaker, last_error=error, last_failure_at=now, failures=breaker.failures + 1)
    failures = 1 if _is_stale(breaker, policy, now) and breaker.state is BreakerState.CLOSED else breaker.failures + 1
    counted = replace(
        breaker,
        failures=failures,
        first_failure_at=now if failures == 1 or breaker.first_failure_at is None else breaker.first_failure_at,
        last_failure_at=now,
        last_error=error,
        probe_owner=None,
        probe_until=None,
        failing_since=breaker.failing_since or now,
        release_size=min(breaker.release_size, 1),
    )
    if breaker.state is BreakerState.HALF_OPEN or failures >= policy.failures_max:
        return replace(counted, state=BreakerState.OPEN, open_until=now + timedelta(seconds=policy.break_s))
    return counted
