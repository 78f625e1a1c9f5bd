"""The way of one notification from the script that sent it to the inbox, as steps in order."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from fieldpost.central.store.attempts import AttemptRecord
from fieldpost.core.audit import AuditEntry, AuditKind, AuditStatus
from fieldpost.core.notification import Notification, Status


class Tone(StrEnum):
    """How a step reads at a glance."""

    PLAIN = "plain"
    GOOD = "good"
    WAIT = "wait"
    BAD = "bad"
    NEXT = "next"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that happened, or (NEXT) that is to happen."""

    tone: Tone
    title: str
    at: datetime | None = None
    note: str | None = None
    error: str | None = None
    reply: str | None = None
    facts: tuple[tuple[str, str], ...] = field(default=())
    duration_ms: int | None = None


_OUTCOMES: dict[str | None, tuple[str, Tone]] = {
    "delivered": ("delivered", Tone.GOOD),
    "transient_failure": ("failed for now", Tone.WAIT),
    "permanent_failure": ("failed for good", Tone.BAD),
    "uncertain": ("no answer: it may have arrived", Tone.WAIT),
    "held": ("the channel is in trouble, nothing counted", Tone.WAIT),
    "released": ("given back untried", Tone.PLAIN),
    None: ("under way", Tone.NEXT),
}


def timeline(n: Notification, attempts: tuple[AttemptRecord, ...], entries: tuple[AuditEntry, ...]) -> tuple[Step, ...]:
    """All steps, oldest first; what is still to come is last."""
    happened = [*(_attempt(number, a, n.cycle > 1) for number, a in enumerate(attempts, 1)), *_acts(entries)]
    happened.sort(key=lambda step: step.at or datetime.min.replace(tzinfo=UTC))
    end = _end(n)
    return (_sent(n), Step(tone=Tone.PLAIN, title="Arrived at central", at=n.created_at), *happened, *end)


def _sent(n: Notification) -> Step:
    p = n.provenance
    facts = (("script", p.script), ("instance", p.instance), ("execution", p.execution_id))
    note = "by the site's own clock" if n.site_enqueued_at else None
    if n.site_enqueued_text:
        note = f"the site wrote {n.site_enqueued_text!r} as its time"
    return Step(
        tone=Tone.PLAIN,
        title=f"Sent at {p.site}",
        at=n.site_enqueued_at,
        note=note,
        facts=tuple((name, value) for name, value in facts if value),
    )


def _attempt(number: int, attempt: AttemptRecord, has_cycles: bool) -> Step:
    word, tone = _OUTCOMES[attempt.outcome]
    facts = [("phase", attempt.phase), ("cycle", str(attempt.cycle) if has_cycles else None)]
    return Step(
        tone=tone,
        title=f"Attempt {number}: {word}",
        at=attempt.started_at,
        error=attempt.error,
        # An error often quotes the reply; once is enough.
        reply=attempt.reply if attempt.reply and attempt.reply not in (attempt.error or "") else None,
        facts=tuple((name, value) for name, value in facts if value),
        duration_ms=attempt.duration_ms,
    )


def _acts(entries: tuple[AuditEntry, ...]) -> list[Step]:
    words = {AuditStatus.SUBMITTED: "Retried", AuditStatus.DISCARDED: "Discarded"}
    return [
        Step(tone=Tone.PLAIN, title=f"{words.get(entry.status, 'Changed')} by {entry.actor}", at=entry.occurred_at)
        for entry in entries
        if entry.kind is AuditKind.OPERATOR_ACT
    ]


def _end(n: Notification) -> list[Step]:
    match n.status:
        case Status.DELIVERED:
            return [Step(tone=Tone.GOOD, title="Delivered", at=n.delivered_at)]
        case Status.PARKED:
            return [Step(tone=Tone.BAD, title="Parked: it waits for a person", at=n.terminal_at)]
        case Status.DISCARDED:
            return []
        case _ if n.held_by is not None:
            return [Step(tone=Tone.NEXT, title=f"Held behind {n.held_by}; looked at again", at=n.due_at)]
        case _:
            return [Step(tone=Tone.NEXT, title="Next attempt", at=n.due_at)]
