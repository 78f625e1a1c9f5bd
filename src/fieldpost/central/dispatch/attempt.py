"""One attempt to deliver one notification, from the claim to the outcome."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from fieldpost.central.secrets.keyring import Opened
from fieldpost.central.store.notifications.claims import Claimed
from fieldpost.clock import Clock
from fieldpost.core.adapter import Adapter, ClaimLost, Envelope
from fieldpost.core.breaker import Breaker, channel_key, is_blocked
from fieldpost.core.lifecycle import Policy
from fieldpost.core.lists import DeliveryPath, refuse_site
from fieldpost.core.notification import TargetStatus
from fieldpost.core.outcome import Held, Outcome, PermanentFailure, Uncertain, scrubbed

log = structlog.get_logger()


@dataclass(slots=True)
class RunningAttempt:
    """A claimed notification in delivery: its path, its start and the last renewal of its lease."""

    claimed: Claimed
    route: DeliveryPath | PermanentFailure
    policy: Policy
    clock: Clock
    lease_s: float
    is_probe: bool = False
    opened: Opened | Held | None = field(default=None, repr=False)
    """The channel's settings with decrypted secrets; Held if the secrets cannot be read."""
    renewed_at: float = 0.0
    claimed_monotonic: float = 0.0
    outcome: Outcome | None = None
    duration_s: float = 0.0
    is_past_gate: bool = False
    """The message may have been sent, with or without a reply."""
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.claimed_monotonic = self.renewed_at = self.clock.monotonic()

    @property
    def key(self) -> tuple[str, int]:
        return self.claimed.notification.notification_id, self.claimed.token

    @property
    def breaker_key(self) -> str | None:
        return channel_key(self.route.channel.name) if isinstance(self.route, DeliveryPath) else None

    def now(self) -> datetime:
        """The database's time: its time at the claim plus the time passed here since."""
        return self.claimed.claimed_at + timedelta(seconds=self.clock.monotonic() - self.claimed_monotonic)

    def gate(self) -> None:
        """Check the claim before the point of no return; half a lease after the last renewal it may soon expire."""
        if self.clock.monotonic() - self.renewed_at > self.lease_s / 2:
            raise ClaimLost(f"the claim was not renewed within {self.lease_s / 2:g} s")
        self.is_past_gate = True


async def attempt(flight: RunningAttempt, adapters: Mapping[str, Adapter], breakers: Mapping[str, Breaker]) -> Outcome:
    """Run one attempt. Raises ClaimLost or CancelledError only if nothing was sent; all else is an outcome."""
    n = flight.claimed.notification
    if flight.claimed.is_orphan_of_lone:
        return PermanentFailure(
            "delivery crashed the node: twice alongside other attempts, then alone", phase="orphaned"
        )
    if isinstance(flight.route, PermanentFailure):
        return flight.route
    refusal = refuse_site(flight.route.notification_list, n.provenance.site)
    if refusal is not None:
        return refusal
    adapter = adapters.get(n.type)
    if adapter is None:
        log.error("attempt.no_adapter", notification_id=n.notification_id, type=n.type)
        return PermanentFailure(f"no delivery adapter for type {n.type!r}", phase="resolve")
    breaker = breakers.get(flight.breaker_key or "")
    if breaker is not None and is_blocked(breaker) and not flight.is_probe:
        return Held(
            f"the breaker of channel {flight.route.channel.name!r} is open: {breaker.last_error}", phase="breaker"
        )
    owed = tuple(t.address for t in n.targets if t.status is TargetStatus.DUE)
    if not owed:
        return PermanentFailure(f"list {n.list_name!r} has no targets", phase="resolve")
    opened = flight.opened
    assert opened is not None, "an attempt with a delivery path has opened its channel's secrets"
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
        gate=flight.gate,
    )
    try:
        async with asyncio.timeout(adapter.deadline_s) as deadline:
            outcome: object = await adapter.deliver(envelope)
        if isinstance(outcome, Outcome):
            return scrubbed(outcome, opened.scrub) if opened.scrub else outcome
        raise TypeError(f"deliver() returned {type(outcome).__name__}, which is not an Outcome")
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, TimeoutError) and deadline.expired():
            return Uncertain(f"no result within {adapter.deadline_s:g} s", phase="deadline")
        if isinstance(error, ClaimLost) or (isinstance(error, asyncio.CancelledError) and _is_cancelled()):
            if not flight.is_past_gate:
                raise
            return Uncertain("the node stopped before the reply arrived", phase="stopped")
        # A bug in an adapter parks only this notification. The log gets the traceback, the row a short text.
        log.exception("attempt.crashed", notification_id=n.notification_id, type=n.type)
        failure = f"the {n.type} adapter failed: {type(error).__name__}: {error}"
        return PermanentFailure(opened.scrub(failure), phase="bug")


def _is_cancelled() -> bool:
    """Whether this attempt was cancelled from outside, not by a CancelledError of the adapter itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
