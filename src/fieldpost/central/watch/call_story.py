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


def summary(detail: CallDetail) -> str:
    """The status of the call and the possible actions, in one or two sentences."""
    call = detail.call
    count = call.report.retry_count
    retries = f"{count} {'retry' if count == 1 else 'retries'}"
    if call.gone_at is not None and not call.report.status.is_terminal:
        return "The site no longer has this call: its buffer was replaced. Its result will not be reported."
    match call.report.status:
        case CallStatus.PARKED:
            tried = f"after {retries}" if count else "after its first attempt"
            return f"The site parked the call {tried}. Retry or discard it."
        case CallStatus.RETRYING:
            late = " It is stuck." if detail.is_stuck else ""
            return f"The site retries the call automatically; {retries} so far.{late}"
        case CallStatus.PENDING:
            late = " It is stuck: the site's agent may not be running." if detail.is_stuck else ""
            return f"The first attempt has not finished.{late}"
        case CallStatus.DELIVERED:
            return "The call was delivered."
        case CallStatus.FAILED:
            return (
                "The target refused the call at the first attempt, and the script got the error. No action is needed."
            )
        case CallStatus.DISCARDED:
            return "An operator discarded the call."


def story(detail: CallDetail) -> tuple[Step, ...]:
    """All known steps, oldest first. Times are those of central's clock."""
    call = detail.call
    steps = [_issued(call), *(step for intent in detail.intents for step in _requested(intent)), _reported(call)]
    if call.gone_at is not None:
        steps.append(
            Step(
                tone=Tone.BAD, title="The site no longer has this call", at=call.gone_at, note="its buffer was replaced"
            )
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
        facts=tuple((name, text) for name, text in (("script", report.script), ("instance", report.instance)) if text),
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
            IntentOutcome.APPLIED: "applied by the site",
            IntentOutcome.NOT_PARKED: "the call was no longer parked",
            IntentOutcome.SITE_UNREACHABLE: "the site could not be reached",
            IntentOutcome.OPERATION_FAILED: "failed at the site",
        }[intent.outcome]
    return intent.state.value


def _tone(intent: Intent) -> Tone:
    if intent.state is IntentState.CANCELLED:
        return Tone.PLAIN
    return Tone.GOOD if intent.outcome is IntentOutcome.APPLIED else Tone.BAD
