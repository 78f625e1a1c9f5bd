"""One attempt to deliver one notification, from the claim to an outcome."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

import structlog

from fieldpost.central.secrets.keyring import Opened
from fieldpost.central.store.notifications.claims import Claimed
from fieldpost.central.store.notifications.turns import RATE_USED_UP
from fieldpost.clock import Clock
from fieldpost.core.delivery.adapter import Adapter, ClaimLost, Envelope, SecretTargets
from fieldpost.core.delivery.breaker import Breaker, is_blocked
from fieldpost.core.delivery.holds import HoldKind
from fieldpost.core.delivery.outcome import (
    PAUSE_MAX,
    Delivered,
    Evidence,
    Held,
    Outcome,
    Pause,
    PermanentFailure,
    TargetPause,
    Uncertain,
    fold,
    paused,
    scrubbed,
    with_others,
    with_paused,
)
from fieldpost.core.delivery.routing import DeliveryPath, SlotPool, pool_of, refuse_site
from fieldpost.core.delivery.settling import without_receipts
from fieldpost.core.events.event import RecordedEvent
from fieldpost.core.events.subscription import SUBSCRIPTION_KEY, Subscription
from fieldpost.core.notification import Severity, Target, TargetStatus
from fieldpost.core.secret import Secret, scrubber_of

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
    """Set if the rate of its subscription allows no delivery now."""
    is_queued: bool = False
    """The rates of its list allow no delivery now, or others wait for them already."""
    paused: Mapping[str, TargetPause] = field(default_factory=dict)
    """Targets of its list that are paused, by address."""
    link: str | None = None
    """The URL of the notification's page."""
    receipt_urls: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Where the provider reports on each due target."""
    target_secrets: Mapping[str, Secret] | Held | None = field(default=None, repr=False)
    """The secrets of its targets; held when they cannot be read, None for a type without."""
    draft_outcome: PermanentFailure | Held | None = None
    """Why its text could not be made; None if it has its text."""
    renewed_at: float = 0.0
    claimed_monotonic: float = 0.0
    outcome: Outcome | None = None
    duration_s: float = 0.0
    is_past_gate: bool = False
    """From here on the notification may have been sent, even if no answer comes."""
    is_sent: bool = False
    """The adapter was called, and did not end by a bug: the outcome says something about the path."""
    reached: dict[str, Target] = field(default_factory=dict)
    """Targets that the adapter reported as reached before the end of the attempt."""
    moved: dict[str, str] = field(default_factory=dict)
    """The new addresses of targets that the provider has moved."""
    key: tuple[str, int] = ("", 0)
    """Id and claim token."""
    delivery_key: str = ""
    pool: SlotPool = SlotPool.LISTS
    is_long: bool = False
    """It has moved to the pool of long attempts and frees its slot."""
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.claimed_monotonic = self.renewed_at = self.clock.monotonic()
        notification = self.claimed.notification
        self.key = notification.notification_id, self.claimed.token
        self.delivery_key = notification.delivery_key
        self.pool = pool_of(self.delivery_key)

    @property
    def breaker_key(self) -> str | None:
        return self.path.breaker_key if isinstance(self.path, DeliveryPath) else None

    @property
    def is_to_subscription(self) -> bool:
        return isinstance(self.path, DeliveryPath) and isinstance(self.path.via, Subscription)

    def target_pauses(self) -> list[TargetPause]:
        """The pauses of targets that its outcome asks for."""
        if self.outcome is None or not self.outcome.pauses:
            return []
        now = self.now()
        return [
            TargetPause(self.delivery_key, pause.address, now + min(pause.wait, PAUSE_MAX), pause.reason)
            for pause in self.outcome.pauses
            if pause.address is not None
        ]

    def now(self) -> datetime:
        """The database's time: as it was at the claim, plus the time that has passed here since."""
        return self.claimed.claimed_at + timedelta(seconds=self.clock.monotonic() - self.claimed_monotonic)

    def gate(self) -> None:
        """Called before the point of no return: half a lease after the last renewal, another node may take the row."""
        if self.clock.monotonic() - self.renewed_at > self.lease_s / 2:
            raise ClaimLost(f"the claim was not renewed within {self.lease_s / 2:g} s")
        self.is_past_gate = True


def event_to_send(claimed: Claimed) -> str | None:
    """The event that the adapter gets itself; None for a notification to a list, which has its text."""
    n = claimed.notification
    return n.event_id if n.delivery_key.startswith(SUBSCRIPTION_KEY) else None


ReachedRecorder = Callable[[RunningAttempt, Sequence[Target]], Awaitable[None]]


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
    if running.draft_outcome is not None:
        return running.draft_outcome
    adapter = adapters.get(path.type)
    if adapter is None:
        log.error("attempt.no_adapter", notification_id=n.notification_id, type=path.type)
        return _not_sent(f"no delivery adapter for type {path.type!r}", "resolve")
    if path.hold_reason is not None:
        return Held(path.hold_reason, phase="pause", evidence=Evidence.NONE, kind=HoldKind.PAUSE)
    if running.rate_wait is not None:
        wait = max(running.rate_wait.turn - running.now(), timedelta(milliseconds=1))
        return Held(RATE_USED_UP, phase="rate", evidence=Evidence.NONE, kind=HoldKind.RATE_LIMIT, wait=wait)
    if running.is_queued:
        kind = HoldKind.RATE_FIRST if n.severity is Severity.CRITICAL else HoldKind.RATE
        return Held(RATE_USED_UP, phase="rate", evidence=Evidence.NONE, kind=kind)
    breaker = breakers.get(path.breaker_key)
    if breaker is not None and breaker.wait_until is not None and breaker.wait_until > (now := running.now()):
        kind = HoldKind(breaker.wait_kind or HoldKind.RATE_LIMIT)
        wait = breaker.wait_until - now
        return Held(breaker.wait_reason or "", phase="wait", evidence=Evidence.NONE, kind=kind, wait=wait)
    if breaker is not None and is_blocked(breaker) and not running.is_probe:
        error = f"the breaker of {path.label} is open: {breaker.last_error}"
        return Held(error, phase="breaker", evidence=Evidence.NONE)
    owed = tuple(t.address for t in n.targets if t.status is TargetStatus.DUE)
    if not owed and any(t.status is TargetStatus.ACCEPTED for t in n.targets):
        return without_receipts(n, path.policy, running.now())
    if not owed and n.targets:  # an attempt whose node was killed had reached the last one
        return Delivered(phase="resolve", evidence=Evidence.NONE)
    if not owed:
        return _not_sent(f"list {n.list_name!r} has no targets", "resolve")
    pauses = _pauses(running, owed)
    if pauses:
        stopped = {pause.address for pause in pauses}
        owed = tuple(address for address in owed if address not in stopped)
        if not owed:
            return paused(*pauses, phase="pause")
    opened = running.opened
    assert opened is not None, "a resolved path has its settings opened"
    running.is_sent = True
    if isinstance(opened, Held):
        return opened
    secrets = running.target_secrets
    if isinstance(secrets, Held):
        return secrets
    bare = () if secrets is None else tuple(_without_secret(a, adapter) for a in owed if a not in secrets)
    if bare:
        owed = tuple(address for address in owed if secrets and address in secrets)
        if not owed:
            running.is_sent = False
            return replace(fold(bare, phase="secrets"), evidence=Evidence.NONE)
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
        note_moved=running.moved.__setitem__,
        event=running.event,
        provenance=n.provenance,
        severity=n.severity,
        incident=n.incident,
        is_cleared=n.is_cleared,
        link=running.link,
        target_secrets={a: secrets[a] for a in owed} if secrets else {},
        receipt_urls=running.receipt_urls,
    )
    outcome = await _deliver(running, adapter, envelope, opened)
    if secrets:
        outcome = scrubbed(outcome, scrubber_of(*secrets.values()))
    if bare:
        outcome = with_others(outcome, owed, bare)
    return with_paused(outcome, owed, pauses) if pauses else outcome


def _without_secret(address: str, adapter: object) -> Target:
    name = adapter.target_secret_name if isinstance(adapter, SecretTargets) else "secret"
    return Target(address, TargetStatus.FAILED, f"the target {address!r} has no {name}")


def _pauses(running: RunningAttempt, owed: Sequence[str]) -> tuple[Pause, ...]:
    """The pauses of these targets that are not over."""
    if not running.paused:
        return ()
    now = running.now()
    found = (running.paused.get(address) for address in owed)
    return tuple(
        Pause(one.until - now, one.reason, one.address) for one in found if one is not None and one.until > now
    )


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
    """Whether this attempt is to end; any other cancellation comes from the adapter."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
