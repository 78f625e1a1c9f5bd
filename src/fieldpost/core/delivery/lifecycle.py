"""The lifecycle of a notification at central: statuses and the transitions between them.

    pending ──delivered──▶ delivered                        (terminal)
       │ └───transient───▶ retrying ──┬─delivered─▶ delivered
       │                     ▲  └─────┘ transient, attempts left
       └─permanent, used up─▶ parked ◀─ permanent, used up
                              │  ▲
             operator: retry ─┘  └─ operator: discard ─▶ discarded   (terminal)

Theory of operation. An adapter's *outcome* is a value; `decide` turns it, with the retry policy, the time and a chance,
into a *transition*; the store writes the transition only if the claim (or the version the operator saw) is still valid.
Only the named constructors below create transitions, so an invalid combination cannot be written:

- `next_attempt_at` is set exactly when `retrying`; `due_at` exactly when live (pending or retrying);
- `last_error` is never empty when `parked`; `delivered_at` is set exactly when `delivered`;
- `terminal_at` is set exactly when terminal; no target is `due` on a terminal row.

CHECK constraints of the table repeat these invariants. A *hold* does not change the status: the channel is failing, so
the notification waits behind the breaker without using attempts, until it exceeds its maximum hold time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from fieldpost.core.delivery.holds import HoldKind, held_by, kind_of
from fieldpost.core.delivery.outcome import (
    Delivered,
    Held,
    Outcome,
    PermanentFailure,
    TransientFailure,
    Uncertain,
    name_errors,
)
from fieldpost.core.delivery.receipt import RECEIPT_WAIT_S_DEFAULT, ReceiptMissing
from fieldpost.core.delivery.retry import RetryPolicy, first_wait
from fieldpost.core.errors import Conflict
from fieldpost.core.frozen import frozen
from fieldpost.core.notification import LIST_KEY, Notification, Status, Target, TargetStatus
from fieldpost.core.quantities import plural
from fieldpost.core.text import truncate


@dataclass(frozen=True, slots=True)
class Policy:
    """How a list and its channel handle failures."""

    retry: RetryPolicy
    park_uncertain: bool = False
    hold_max: timedelta = timedelta(days=5)
    receipt_wait: timedelta = timedelta(seconds=RECEIPT_WAIT_S_DEFAULT)
    receipt_missing: ReceiptMissing = ReceiptMissing.DELIVERED


@frozen
class Hold:
    """The holder of a notification, and the end: a breaker's next probe, or the end of a hold without a breaker."""

    by: str
    until: datetime


@frozen(kw_only=True)
class Transition:
    """The new state of a notification. `targets` contains only changed targets."""

    status: Status
    retry_count: int
    cycle: int
    last_error: str | None = None
    last_attempt_at: datetime | None = None
    next_attempt_at: datetime | None = None
    due_at: datetime | None = None
    delivered_at: datetime | None = None
    terminal_at: datetime | None = None
    held_by: str | None = None
    held_reason: str | None = None
    targets: tuple[Target, ...] = ()

    @property
    def is_timed(self) -> bool:
        """Whether it waits for `due_at`, and not for a slot or a breaker."""
        return self.status is Status.RETRYING if self.held_by is None else kind_of(self.held_by).is_timed


def decide(
    n: Notification,
    outcome: Outcome,
    policy: Policy,
    hold: Hold,
    now: datetime,
    chance: float,
    reached: Mapping[str, Target] = MappingProxyType({}),
) -> Transition:
    """The transition that follows from an attempt with this outcome. `reached` are targets that the attempt reported as
    reached before its end; they stay reached with any outcome."""
    if type(outcome) is Delivered and not (outcome.targets or reached) and _NOT_REACHED.isdisjoint(_statuses(n)):
        # Fast path: the result of the rules below for most attempts, without a comparison per target.
        owed = [t.address for t in n.targets if t.status is TargetStatus.DUE]
        return _delivered(n, tuple([Target(address, TargetStatus.DELIVERED) for address in owed]), now)
    targets = _settle(_mark_reached(n.targets, reached) if reached else n.targets, outcome)
    if isinstance(outcome, Held) and _is_owed(targets, outcome):
        if outcome.kind.ages and now - n.cycle_started_at >= policy.hold_max:
            return held_too_long(n, outcome.error, targets, policy.hold_max, now)
        return held(n, outcome, targets, hold, now)
    match outcome:
        case Uncertain() if policy.park_uncertain and _is_owed(targets, outcome):
            error = f"{outcome.error}; it may have been delivered, and the list parks uncertain sends"
            return parked(n, _last_error(replace(outcome, error=error), targets), targets, now)
        case _ if _is_owed(targets, outcome):
            # An attempt that reached a further target uses up no retry; the age limits all attempts.
            has_progress = any(t.status is TargetStatus.DELIVERED for t in _changed(n, targets))
            retry_count = n.retry_count + (not has_progress)
            delay = first_wait(policy.retry, chance) if has_progress else policy.retry.delay(retry_count, chance)
            is_old = now - n.cycle_started_at >= policy.hold_max
            if delay is None or is_old:
                error = _last_error(outcome, targets)
                error = f"not delivered within {policy.hold_max}: {error}" if is_old else error
                return replace(parked(n, error, targets, now), retry_count=retry_count)
            retry_after = outcome.retry_after if isinstance(outcome, TransientFailure | Uncertain) else None
            next_attempt_at = now + max(delay, retry_after or timedelta(0))
            error = outcome.error or name_errors(targets, TargetStatus.FAILED)
            return replace(retrying(n, error, targets, next_attempt_at, now), retry_count=retry_count)
        case _ if any(t.status is TargetStatus.ACCEPTED for t in targets):
            return awaiting(n, targets, policy.receipt_wait, now)
        case _ if _has_failed(targets, outcome):
            error = name_errors(targets, TargetStatus.FAILED) or outcome.error or ""
            return parked(n, error, targets, now)
        case _:
            return delivered(n, targets, now)


AWAITS_RECEIPT = "a provider has accepted it and will report; waiting for the receipts"
_OPEN = frozenset({TargetStatus.DUE, TargetStatus.ACCEPTED})
_NOT_REACHED = frozenset({TargetStatus.ACCEPTED, TargetStatus.FAILED})


def _statuses(n: Notification) -> list[TargetStatus]:
    return [t.status for t in n.targets]


def delivered(n: Notification, targets: tuple[Target, ...], now: datetime) -> Transition:
    return _delivered(n, _changed(n, targets), now)


def _delivered(n: Notification, changed: tuple[Target, ...], now: datetime) -> Transition:
    return Transition(
        status=Status.DELIVERED,
        retry_count=n.retry_count,
        cycle=n.cycle,
        last_error=n.last_error,
        last_attempt_at=now,
        delivered_at=now,
        terminal_at=now,
        targets=changed,
    )


def retrying(
    n: Notification, error: str, targets: tuple[Target, ...], next_attempt_at: datetime, now: datetime
) -> Transition:
    return Transition(
        status=Status.RETRYING,
        retry_count=n.retry_count,
        cycle=n.cycle,
        last_error=_reason(error),
        last_attempt_at=now,
        next_attempt_at=next_attempt_at,
        due_at=next_attempt_at,
        targets=_changed(n, targets),
    )


def parked(n: Notification, error: str, targets: tuple[Target, ...], now: datetime) -> Transition:
    """Not delivered; an operator must act. Due targets become failed, because Retry addresses the failed ones."""
    error = _reason(error)
    given_up = tuple(
        replace(t, status=TargetStatus.FAILED, error=t.error or error) if t.status is TargetStatus.DUE else t
        for t in targets
    )
    return Transition(
        status=Status.PARKED,
        retry_count=n.retry_count,
        cycle=n.cycle,
        last_error=error,
        last_attempt_at=now,
        terminal_at=now,
        targets=_changed(n, given_up),
    )


def held(n: Notification, outcome: Held, targets: tuple[Target, ...], hold: Hold, now: datetime) -> Transition:
    """Held by a breaker: status, retry count and next attempt do not change."""
    return Transition(
        status=n.status,
        retry_count=n.retry_count,
        cycle=n.cycle,
        last_error=n.last_error,
        last_attempt_at=now,
        next_attempt_at=n.next_attempt_at,
        due_at=hold.until,
        held_by=hold.by,
        held_reason=truncate(outcome.error),
        targets=_changed(n, targets),
    )


def awaiting(n: Notification, targets: tuple[Target, ...], wait: timedelta, now: datetime) -> Transition:
    """Accepted by a provider that will report: nothing is sent again before the receipt, or before the wait is over."""
    accepted = [t.accepted_at or now for t in targets if t.status is TargetStatus.ACCEPTED]
    reason = f"{AWAITS_RECEIPT} of {len(accepted)} of {plural(len(targets), 'target')}"
    hold = Hold(held_by(HoldKind.RECEIPT, n.delivery_key), min(accepted) + wait)
    return held(n, Held(reason), targets, hold, now)


def held_too_long(
    n: Notification, reason: str, targets: tuple[Target, ...], hold_max: timedelta, now: datetime
) -> Transition:
    return parked(n, f"held longer than {hold_max}: {_with_failed(reason, targets)}", targets, now)


def retry(n: Notification, now: datetime) -> Transition:
    """An operator's Retry: a new cycle for the failed targets; delivered targets get no second copy."""
    _require_parked(n, "retried")
    return Transition(
        status=Status.PENDING,
        retry_count=0,
        cycle=n.cycle + 1,
        last_attempt_at=n.last_attempt_at,
        due_at=now,
        targets=tuple(
            replace(t, status=TargetStatus.DUE, error=None) for t in n.targets if t.status is TargetStatus.FAILED
        ),
    )


def resend(n: Notification, now: datetime) -> Transition:
    """Send a webhook again under its id, although it was delivered or is parked: a new cycle for all its targets."""
    is_to_list = n.event_id is None or n.delivery_key.startswith(LIST_KEY)
    if n.status not in (Status.DELIVERED, Status.PARKED) or is_to_list:
        what = "notification to a list" if is_to_list else f"notification that is {n.status.value}"
        raise Conflict("notification.not_resendable", f"a {what} cannot be resent")
    return Transition(
        status=Status.PENDING,
        retry_count=0,
        cycle=n.cycle + 1,
        last_attempt_at=n.last_attempt_at,
        due_at=now,
        targets=tuple(replace(t, status=TargetStatus.DUE, error=None) for t in n.targets),
    )


def discard(n: Notification, now: datetime) -> Transition:
    """An operator's Discard: delivery is abandoned; the row stays."""
    _require_parked(n, "discarded")
    return Transition(
        status=Status.DISCARDED,
        retry_count=n.retry_count,
        cycle=n.cycle,
        last_error=n.last_error,
        last_attempt_at=n.last_attempt_at,
        terminal_at=now,
    )


def _require_parked(n: Notification, action: str) -> None:
    if n.status is not Status.PARKED:
        raise Conflict(
            "notification.not_parked", f"only a parked notification can be {action}; this one is {n.status.value}"
        )


def _mark_reached(targets: tuple[Target, ...], reached: Mapping[str, Target]) -> tuple[Target, ...]:
    return tuple(reached.get(t.address, t) for t in targets)


def _settle(before: tuple[Target, ...], outcome: Outcome) -> tuple[Target, ...]:
    """All targets after the outcome; the outcome's general verdict applies to targets that it does not name."""
    named = {t.address: t for t in outcome.targets}
    return tuple(
        _storable(named[t.address]) if t.address in named and t.status in _OPEN else _general(t, outcome, bool(named))
        for t in before
    )


def _storable(target: Target) -> Target:
    """A target returned by an adapter, with its error made storable."""
    if target.status is TargetStatus.FAILED:
        return replace(target, error=_reason(target.error or ""))
    return replace(target, error=truncate(target.error)) if target.error else target


def _general(target: Target, outcome: Outcome, others_named: bool) -> Target:
    if target.status is not TargetStatus.DUE or others_named:
        return target
    match outcome:
        case Delivered():
            return Target(target.address, TargetStatus.DELIVERED)
        case PermanentFailure():
            return replace(target, status=TargetStatus.FAILED, error=_reason(outcome.error))
        case Held():
            return target
        case _:
            return replace(target, error=truncate(outcome.error or ""))


def _last_error(outcome: Outcome, targets: tuple[Target, ...]) -> str:
    """The error of an attempt that was the last: it names the targets that failed before as well."""
    has_failed = any(t.status is TargetStatus.FAILED for t in targets)
    has_errors = all(t.error for t in targets if t.status is TargetStatus.DUE)
    if isinstance(outcome, TransientFailure) and has_failed and has_errors:
        return name_errors(targets, TargetStatus.DUE, TargetStatus.FAILED)
    return _with_failed(outcome.error or "", targets)


def _with_failed(error: str, targets: tuple[Target, ...]) -> str:
    return "; ".join(filter(None, (error, name_errors(targets, TargetStatus.FAILED))))


def _reason(error: str) -> str:
    """The error made storable; a failure always has a text."""
    return truncate(error) or "failed without a reason given"


def _is_owed(targets: tuple[Target, ...], outcome: Outcome) -> bool:
    if targets:
        return any(t.status is TargetStatus.DUE for t in targets)
    return isinstance(outcome, TransientFailure | Uncertain | Held)


def _has_failed(targets: tuple[Target, ...], outcome: Outcome) -> bool:
    """Once all targets are reached nothing failed, however the attempt ended: a retry would have no targets."""
    if targets:
        return any(t.status is TargetStatus.FAILED for t in targets)
    return isinstance(outcome, PermanentFailure)


def _changed(n: Notification, targets: tuple[Target, ...]) -> tuple[Target, ...]:
    return tuple(after for before, after in zip(n.targets, targets, strict=True) if after != before)
