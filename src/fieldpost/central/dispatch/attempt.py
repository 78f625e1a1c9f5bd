"""One attempt to deliver one notification, from the claim to an outcome."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

import structlog

from fieldpost.central.secrets.keyring import Opened
from fieldpost.central.store.notifications.claims import Claimed
from fieldpost.clock import Clock
from fieldpost.core.delivery.adapter import Adapter, ClaimLost, Envelope
from fieldpost.core.delivery.breaker import Breaker, is_blocked
from fieldpost.core.delivery.holds import HoldKind
from fieldpost.core.delivery.outcome import Evidence, Held, Outcome, PermanentFailure, Uncertain, scrubbed
from fieldpost.core.delivery.routing import DeliveryPath, refuse_site
from fieldpost.core.events.event import RecordedEvent
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.notification import TargetStatus

RATE_USED_UP = "the rate limit is used up"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RateWait:
    """The turn of a notification beyond the rate of its path, and when the path's next delivery may start."""

    turn: datetime
    next_at: datetime


@dataclass(slots=True)
class RunningAttempt:
    """A claimed notification in delivery: its path, its times and its outcome."""

    claimed: Claimed
    path: DeliveryPath | PermanentFailure
    clock: Clock
    lease_s: float
    is_probe: bool = False
    event: RecordedEvent | None = field(default=None, repr=False)
    """The event that caused the notification."""
    opened: Opened | Held | None = field(default=None, repr=False)
    """The settings for the adapter; held when the secrets cannot be read."""
    rate_wait: RateWait | None = None
    """Set if the rate of its path allows no delivery now."""
    renewed_at: float = 0.0
    claimed_monotonic: float = 0.0
    outcome: Outcome | None = None
    duration_s: float = 0.0
    is_past_gate: bool = False
    """From here on the notification may have been sent, even if no answer comes."""
    is_sent: bool = False
    """The adapter was called, and did not end by a bug: the outcome says something about the path."""
    reached: set[str] = field(default_factory=set)
    """Targets that the adapter reported as reached before the end of the attempt."""
    is_long: bool = False
    """It has moved to the pool of long attempts and frees its slot."""
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.claimed_monotonic = self.renewed_at = self.clock.monotonic()

    @property
    def key(self) -> tuple[str, int]:
        return self.claimed.notification.notification_id, self.claimed.token

    @property
    def delivery_key(self) -> str:
        return self.claimed.notification.delivery_key

    @property
    def breaker_key(self) -> str | None:
        return self.path.breaker_key if isinstance(self.path, DeliveryPath) else None

    @property
    def is_to_subscription(self) -> bool:
        return isinstance(self.path, DeliveryPath) and isinstance(self.path.via, Subscription)

    def now(self) -> datetime:
        """The database's time: as it was at the claim, plus the time that has passed here since."""
        return self.claimed.claimed_at + timedelta(seconds=self.clock.monotonic() - self.claimed_monotonic)

    def gate(self) -> None:
        """Called before the point of no return: half a lease after the last renewal, another node may take the row."""
        if self.clock.monotonic() - self.renewed_at > self.lease_s / 2:
            raise ClaimLost(f"the claim was not renewed within {self.lease_s / 2:g} s")
        self.is_past_gate = True


ReachedRecorder = Callable[[RunningAttempt, Sequence[str]], Awaitable[None]]


async def attempt(
    running: RunningAttempt,
    adapters: Mapping[str, Adapter],
    breakers: Mapping[str, Breaker],
    record_reached: ReachedRecorder,
) -> Outcome:
    """The outcome of one attempt. Raises ClaimLost and cancellation while nothing was sent; all else is an outcome."""
    n, path = running.claimed.notification, running.path
    if running.claimed.has_crashed:
        return _not_sent("delivery crashed the node while no other attempt ran there", "orphaned")
    if isinstance(path, PermanentFailure):
        return path
    refusal = refuse_site(path, n.provenance.site)
    if refusal is not None:
        return refusal
    adapter = adapters.get(path.type)
    if adapter is None:
        log.error("attempt.no_adapter", notification_id=n.notification_id, type=path.type)
        return _not_sent(f"no delivery adapter for type {path.type!r}", "resolve")
    if path.hold_reason is not None:
        return Held(path.hold_reason, phase="pause", evidence=Evidence.NONE, kind=HoldKind.PAUSE)
    if running.rate_wait is not None:
        wait = max(running.rate_wait.turn - running.now(), timedelta(milliseconds=1))
        return Held(RATE_USED_UP, phase="rate", evidence=Evidence.NONE, kind=HoldKind.RATE_LIMIT, wait=wait)
    breaker = breakers.get(path.breaker_key)
    if breaker is not None and breaker.wait_until is not None and breaker.wait_until > (now := running.now()):
        kind = HoldKind(breaker.wait_kind or HoldKind.RATE_LIMIT)
        wait = breaker.wait_until - now
        return Held(breaker.wait_reason or "", phase="wait", evidence=Evidence.NONE, kind=kind, wait=wait)
    if breaker is not None and is_blocked(breaker) and not running.is_probe:
        error = f"the breaker of {path.label} is open: {breaker.last_error}"
        return Held(error, phase="breaker", evidence=Evidence.NONE)
    owed = tuple(t.address for t in n.targets if t.status is TargetStatus.DUE)
    if not owed:
        return _not_sent(f"list {n.list_name!r} has no targets", "resolve")
    opened = running.opened
    assert opened is not None, "a resolved path has its settings opened"
    running.is_sent = True
    if isinstance(opened, Held):
        return opened
    envelope = Envelope(
        notification_id=n.notification_id,
        list_name=n.list_name,
        subject=n.subject,
        body=n.body,
        targets=owed,
        settings=opened.settings,
        dated=n.created_at,
        gate=running.gate,
        record_reached=partial(record_reached, running),
        event=running.event,
        provenance=n.provenance,
    )
    return await _deliver(running, adapter, envelope, opened)


async def _deliver(running: RunningAttempt, adapter: Adapter, envelope: Envelope, opened: Opened) -> Outcome:
    try:
        async with asyncio.timeout(adapter.deadline_s) as deadline:
            outcome: object = await adapter.deliver(envelope)
        if isinstance(outcome, Outcome):
            return scrubbed(outcome, opened.scrub) if opened.scrub else outcome
        raise TypeError(f"deliver() returned {type(outcome).__name__} instead of an outcome")
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, TimeoutError) and deadline.expired():
            evidence = Evidence.FAILS if running.is_to_subscription else Evidence.NONE
            return Uncertain(f"no result within {adapter.deadline_s:g} s", phase="deadline", evidence=evidence)
        if isinstance(error, ClaimLost) or (isinstance(error, asyncio.CancelledError) and _is_cancelled()):
            if not running.is_past_gate:
                raise
            return Uncertain("the node stopped before an answer came", phase="stopped")
        # A bug in an adapter parks this one notification; the log gets the traceback, the row a short text.
        log.exception("attempt.crashed", notification_id=envelope.notification_id, type=adapter.type)
        running.is_sent = False
        failure = f"the {adapter.type} adapter failed: {type(error).__name__}: {error}"
        return _not_sent(opened.scrub(failure), "bug")


def _not_sent(error: str, phase: str) -> PermanentFailure:
    return PermanentFailure(error, phase=phase, evidence=Evidence.NONE)


def _is_cancelled() -> bool:
    """Whether this attempt is to end; a cancellation that nobody requested is the adapter's own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
