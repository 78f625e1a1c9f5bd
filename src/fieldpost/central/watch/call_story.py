"""The story of one cached call as far as central knows it: the site's newest report, and the operators' intents.

The mirror keeps only the newest report of a call; the site's event log has the steps between two reports.
"""

from datetime import datetime, timedelta

from fieldpost.central.watch.cached_calls import CallDetail
from fieldpost.central.watch.timeline import Step, Tone
from fieldpost.core.sites.call_mirror import CachedCall
from fieldpost.core.sites.intent import Intent, IntentOutcome, IntentState
from fieldpost.core.sites.message import CallStatus

_TONES = {
    CallStatus.PENDING: Tone.WAIT,
    CallStatus.RETRYING: Tone.WAIT,
    CallStatus.DELIVERED: Tone.GOOD,
    CallStatus.PARKED: Tone.BAD,
    CallStatus.FAILED: Tone.BAD,
    CallStatus.DISCARDED: Tone.PLAIN,
}


def standing(detail: CallDetail) -> str:
    """The status of the call and what can be done, in one or two sentences."""
    call = detail.call
    retries = call.report.retry_count
    if call.gone_at is not None and not call.report.status.is_terminal:
        return "The site no longer has this call: its buffer was replaced. Its result will not be reported."
    match call.report.status:
        case CallStatus.PARKED:
            tried = (
                f"after {retries} {'retry' if retries == 1 else 'retries'}" if retries else "after its first attempt"
            )
            return f"The site gave up {tried}. Retry or discard the call."
        case CallStatus.RETRYING:
            late = " It is stuck." if detail.is_stuck else ""
            return (
                f"The site retries it automatically; {retries} {'retry' if retries == 1 else 'retries'} so far.{late}"
            )
        case CallStatus.PENDING:
            late = " It is stuck: the site's agent may not be running." if detail.is_stuck else ""
            return f"Its first attempt has no outcome yet.{late}"
        case CallStatus.DELIVERED:
            return "It was delivered."
        case CallStatus.FAILED:
            return "The target refused it at the first attempt, and the script got the error. No action is needed."
        case CallStatus.DISCARDED:
            return "An operator discarded it."


def story(detail: CallDetail) -> tuple[Step, ...]:
    """All known steps, oldest first. Times are those of central's clock."""
    call = detail.call
    steps = [_issued(call), *(step for intent in detail.intents for step in _requested(intent)), _reported(call)]
    if call.gone_at is not None:
        steps.append(
            Step(tone=Tone.BAD, title="The site no longer has it", at=call.gone_at, note="its buffer was replaced")
        )
    return tuple(sorted(steps, key=_time_of))


def _time_of(step: Step) -> datetime:
    assert step.at is not None, "every step of a story has a time"
    return step.at


def _issued(call: CachedCall) -> Step:
    report = call.report
    late = call.first_seen_at - call.begun_at
    return Step(
        tone=Tone.PLAIN,
        title="Issued by a script",
        at=call.begun_at,
        facts=tuple((name, text) for name, text in (("by", report.script), ("at", report.instance)) if text),
        note=f"reported to central {_span(late)} later" if late > timedelta(seconds=5) else None,
    )


def _span(late: timedelta) -> str:
    seconds = int(late.total_seconds())
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


def _reported(call: CachedCall) -> Step:
    report = call.report
    facts = [("retries", str(report.retry_count))] if report.retry_count else []
    if report.http_status is not None:
        facts.append(("HTTP", str(report.http_status)))
    return Step(
        tone=_TONES[report.status],
        title=f"{report.status.value.capitalize()}, as last reported by the site",
        at=call.received_at,
        facts=tuple(facts),
        error=report.last_error,
    )


def _requested(intent: Intent) -> list[Step]:
    verb = intent.kind.value.replace("_", " ").capitalize()
    steps = [
        Step(
            tone=Tone.PLAIN,
            title=f"{verb} requested",
            at=intent.created_at,
            facts=(("by", intent.actor),),
            note=intent.reason,
        )
    ]
    if intent.sent_at is not None:
        steps.append(Step(tone=Tone.PLAIN, title=f"{verb} sent to the site", at=intent.sent_at))
    if intent.done_at is not None:
        steps.append(
            Step(
                tone=_tone(intent),
                title=f"{verb}: {_ended(intent)}",
                at=intent.done_at,
                note=intent.detail,
            )
        )
    return steps


def _ended(intent: Intent) -> str:
    if intent.state is IntentState.DONE and intent.outcome is not None:
        return {
            IntentOutcome.APPLIED: "the site applied it",
            IntentOutcome.NOT_PARKED: "it was no longer parked",
            IntentOutcome.SITE_UNREACHABLE: "the site was not reachable",
            IntentOutcome.OPERATION_FAILED: "the site failed to apply it",
        }[intent.outcome]
    return intent.state.value


def _tone(intent: Intent) -> Tone:
    if intent.state is IntentState.CANCELLED:
        return Tone.PLAIN
    return Tone.GOOD if intent.outcome is IntentOutcome.APPLIED else Tone.BAD
