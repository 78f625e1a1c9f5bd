"""The path of one notification from its script to the inbox: as steps in time order, and as stops."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from fieldpost.central.store.notifications.attempts import AttemptRecord
from fieldpost.core.actor import APP
from fieldpost.core.audit import AuditEntry, AuditKind, AuditStatus
from fieldpost.core.delivery.exchange import Exchange
from fieldpost.core.events.subscription import SUBSCRIPTION_KEY
from fieldpost.core.notification import Notification, Status, TargetStatus


class Tone(StrEnum):
    """The color of a step."""

    PLAIN = "plain"
    GOOD = "good"
    WAIT = "wait"
    BAD = "bad"
    NEXT = "next"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One event of the past, or (NEXT) of the future."""

    tone: Tone
    title: str
    at: datetime | None = None
    note: str | None = None
    error: str | None = None
    reply: str | None = None
    facts: tuple[tuple[str, str], ...] = field(default=())
    duration_ms: int | None = None
    begins_cycle: bool = False
    action_id: str | None = None
    """The bulk action that made the change."""
    exchanges: tuple[Exchange, ...] = ()
    """Requests and responses of a webhook."""


class StepState(StrEnum):
    """The state of a stop on the path."""

    DONE = "done"
    HERE = "here"
    WAIT = "wait"
    BAD = "bad"
    AHEAD = "ahead"


@dataclass(frozen=True, slots=True)
class Stop:
    """One place on the path of a notification."""

    place: str
    name: str | None
    state: StepState
    note: str | None = None
    at: datetime | None = None


_OUTCOMES: dict[str | None, tuple[str, Tone]] = {
    "delivered": ("delivered", Tone.GOOD),
    "transient_failure": ("failed, will be retried", Tone.WAIT),
    "permanent_failure": ("failed permanently", Tone.BAD),
    "uncertain": ("no answer, may have arrived", Tone.WAIT),
    "held": ("held: the channel fails", Tone.WAIT),
    "released": ("released without a try", Tone.PLAIN),
    "abandoned": ("its node stopped, may have arrived", Tone.WAIT),
    "crashed": ("its process crashed", Tone.BAD),
    None: ("in progress", Tone.NEXT),
}


def timeline(
    n: Notification,
    attempts: tuple[AttemptRecord, ...],
    entries: tuple[AuditEntry, ...],
    next_attempt_at: datetime | None = None,
) -> tuple[Step, ...]:
    """All steps, oldest first; future ones are last. `next_attempt_at` is None for an attempt that is due now."""
    happened = [_attempt(n, number, attempt) for number, attempt in enumerate(attempts, 1)]
    happened += [_action(entry) for entry in entries if entry.kind is AuditKind.OPERATOR_ACTION]
    happened.sort(key=lambda step: step.at or datetime.min.replace(tzinfo=UTC))
    return (
        _sent(n),
        Step(tone=Tone.PLAIN, title="Arrived at central", at=n.created_at),
        *happened,
        *_end(n, next_attempt_at),
    )


def cycles(steps: Sequence[Step]) -> list[list[Step]]:
    """The steps by cycle: each retry by an operator starts a new one."""
    found: list[list[Step]] = [[]]
    for step in steps:
        if step.begins_cycle:
            found.append([])
        found[-1].append(step)
    return found


def stops(n: Notification, attempts: Sequence[AttemptRecord], channel: str | None) -> tuple[Stop, ...]:
    """Script, site, central, channel and inbox (of a webhook: webhook and receiver), and the state of each."""
    central, on_channel, inbox = _states(n, attempts)
    p = n.provenance
    is_app = p.site.startswith(APP)
    reached = sum(target.status is TargetStatus.DELIVERED for target in n.targets)
    progress = f"{reached} of {len(n.targets)} reached" if n.targets else None
    way, end = ("webhook", "receiver") if _is_of_subscription(n) else ("channel", "inbox")
    if _is_of_subscription(n):
        progress = None
    waiting = f"waits for its {'next' if attempts else 'first'} attempt"
    tries = f"{len(attempts)} attempt{'' if len(attempts) == 1 else 's'}" if attempts else None
    return (
        Stop("application" if is_app else "script", p.script, StepState.DONE, at=n.site_enqueued_at),
        Stop("API" if is_app else "site", p.site.removeprefix(APP), StepState.DONE),
        Stop("central", None, central, waiting if central is StepState.HERE else None, n.created_at),
        Stop(way, channel, on_channel, "held" if n.held_by else tries, n.last_attempt_at),
        Stop(end, n.list_name, inbox, "discarded" if n.status is Status.DISCARDED else progress, n.delivered_at),
    )


_OF_THE_ADDRESSEE = frozenset({"rcpt", "data"})
"""In these phases the channel works; the message or the addressee is at fault."""
_OF_CENTRAL = frozenset({"resolve", "targets", "settings", "secrets", "bug", "orphaned"})
"""In these phases the notification has not left central."""


def _states(n: Notification, attempts: Sequence[AttemptRecord]) -> tuple[StepState, StepState, StepState]:
    """The states of central, the channel and the inbox."""
    if n.status is Status.DELIVERED:
        return StepState.DONE, StepState.DONE, StepState.DONE
    is_partly_delivered = any(target.status is TargetStatus.DELIVERED for target in n.targets)
    failed = StepState.BAD if n.status.is_terminal else StepState.WAIT
    if n.held_by is not None:
        return StepState.DONE, StepState.WAIT, StepState.AHEAD
    phase = next((a.phase for a in reversed(attempts) if a.outcome not in (None, "released", "abandoned")), None)
    if not n.status.is_terminal and attempts and attempts[-1].finished_at is None:
        return StepState.DONE, StepState.HERE, StepState.AHEAD
    if n.status is Status.PENDING:
        return StepState.HERE, StepState.AHEAD, StepState.AHEAD
    if phase is None or phase in _OF_CENTRAL:
        return failed, StepState.AHEAD, StepState.AHEAD
    if is_partly_delivered or phase in _OF_THE_ADDRESSEE:
        return StepState.DONE, StepState.DONE, failed
    return StepState.DONE, failed, StepState.AHEAD


def _is_of_subscription(n: Notification) -> bool:
    return n.delivery_key.startswith(SUBSCRIPTION_KEY)


def _sent(n: Notification) -> Step:
    p = n.provenance
    is_app = p.site.startswith(APP)
    facts = (("script", p.script), ("instance", p.instance), ("execution", p.execution_id))
    note = "by the site's clock" if n.site_enqueued_at else None
    if n.site_enqueued_text:
        note = f"the site reported the time {n.site_enqueued_text!r}"
    return Step(
        tone=Tone.PLAIN,
        title=f"{'Published' if n.event_id else 'Sent'} {'by' if is_app else 'at'} {p.site.removeprefix(APP)}",
        at=n.site_enqueued_at,
        note=note,
        facts=tuple((name, value) for name, value in facts if value),
    )


def _attempt(n: Notification, number: int, attempt: AttemptRecord) -> Step:
    outcome, tone = _OUTCOMES[attempt.outcome]
    if attempt.outcome == "held" and _is_of_subscription(n):
        outcome = "held: central could not make the call"
    return Step(
        tone=tone,
        title=f"Attempt {number}: {outcome}",
        at=attempt.started_at,
        error=attempt.error,
        # An error often quotes the reply already.
        reply=attempt.reply if attempt.reply and attempt.reply not in (attempt.error or "") else None,
        facts=(("phase", attempt.phase),) if attempt.phase else (),
        duration_ms=attempt.duration_ms,
        exchanges=attempt.exchanges,
    )


def _action(entry: AuditEntry) -> Step:
    verbs = {AuditStatus.SUBMITTED: "Retried", AuditStatus.DISCARDED: "Discarded"}
    return Step(
        tone=Tone.PLAIN,
        title=f"{verbs.get(entry.status, 'Changed')} by {entry.actor}",
        at=entry.occurred_at,
        note=entry.request_summary,
        begins_cycle=entry.status is AuditStatus.SUBMITTED,
        action_id=entry.bulk_action_id,
    )


def _end(n: Notification, next_attempt_at: datetime | None) -> list[Step]:
    match n.status:
        case Status.DELIVERED:
            return [Step(tone=Tone.GOOD, title="Delivered", at=n.delivered_at)]
        case Status.PARKED:
            return [Step(tone=Tone.BAD, title="Parked until an operator acts", at=n.terminal_at)]
        case Status.DISCARDED:
            return []
        case _:
            held = f"Held by {n.held_by}; next" if n.held_by else "Next"
            title = f"{held} attempt" if next_attempt_at else f"{held} attempt is due now"
            return [Step(tone=Tone.NEXT, title=title, at=next_attempt_at)]
