"""The outcome of a webhook attempt, by the result of its last try.

result                                  outcome              evidence   why
2xx                                     delivered            works
410                                     permanent, gone      fails      the receiver wants no more calls
a code to give up on                    permanent            fails
any other status                        transient            fails      counted, whatever the code (WHK-21)
connect, TLS, write failed or timed out transient            fails      the receiver's failure
request written, no answer              uncertain            fails      it may have arrived
name not resolved, no free connection   held, our side       none       our failure
address blocked by policy               held, our side       none       our failure
"""

from datetime import timedelta

from fieldpost.central.adapters.http import OUR_PHASES, HttpAttempt
from fieldpost.core.delivery.exchange import Exchange
from fieldpost.core.delivery.holds import HoldKind
from fieldpost.core.delivery.outcome import (
    Delivered,
    Evidence,
    Held,
    Outcome,
    PermanentFailure,
    TransientFailure,
    Uncertain,
)
from fieldpost.outbound.client import HttpAnswer, NoAnswer

GONE = 410


def classify(attempt: HttpAttempt, exchange: Exchange, give_up_codes: frozenset[int]) -> Outcome:
    """The outcome of a finished attempt."""
    kept = (exchange,)
    match attempt.result:
        case HttpAnswer(status=status):
            return _answered(status, attempt.retry_after_s, kept, give_up_codes)
        case NoAnswer() as error if error.phase in OUR_PHASES:
            return held(error.reason, error.phase.value, kept)
        case NoAnswer() as error if error.is_sent:
            return Uncertain(
                f"the request was sent, but {_lowered(error.reason)}",
                phase=error.phase.value,
                evidence=Evidence.FAILS,
                exchanges=kept,
            )
        case NoAnswer() as error:
            return TransientFailure(error.reason, phase=error.phase.value, evidence=Evidence.FAILS, exchanges=kept)
        case blocked:
            return held(str(blocked), "guard", kept)


def held(error: str, phase: str, exchanges: tuple[Exchange, ...] = ()) -> Held:
    """A failure of ours: no attempt is used, and the breaker learns nothing."""
    return Held(error, phase=phase, evidence=Evidence.NONE, kind=HoldKind.OUR_SIDE, exchanges=exchanges)


def _answered(
    status: int, retry_after_s: float | None, kept: tuple[Exchange, ...], give_up_codes: frozenset[int]
) -> Outcome:
    reply = str(status)
    if 200 <= status < 300:
        return Delivered(reply=reply, phase="answer", exchanges=kept)
    error = f"the receiver answered {status}"
    if status == GONE:
        error = "the receiver answered 410: it wants no more calls"
        return PermanentFailure(
            error, reply=reply, phase="answer", evidence=Evidence.FAILS, exchanges=kept, is_gone=True
        )
    if status in give_up_codes:
        error += ", a code to give up on"
        return PermanentFailure(error, reply=reply, phase="answer", evidence=Evidence.FAILS, exchanges=kept)
    if 300 <= status < 400:
        error += "; redirects are not followed"
    wait = None
    if retry_after_s is not None:
        wait = timedelta(seconds=retry_after_s)
        error += f" and asks to wait {retry_after_s:.0f} s"
    return TransientFailure(
        error, retry_after=wait, reply=reply, phase="answer", evidence=Evidence.FAILS, exchanges=kept
    )


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
