"""The meaning of the observed requests of Apprise.

Apprise reports success or failure and neither cause nor code, so its requests are observed (`child.py`):

observed                                     target
Apprise failed, an answer was not 2xx        by the last such answer, see `by_status`: 429 pauses, 408 and 5xx are
                                             transient, every other status fails (the URL carries the credentials)
Apprise succeeded                            by the last answer
request sent, no answer                      uncertain
not sent: name, connect, TLS, guard          held
Apprise failed although all answers are 2xx  transient
no request at all                            transient, with any report of Apprise
URL not accepted by Apprise                  failed
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from fieldpost.central.adapters.answers import ReadAnswer, Verdict, answer_text, by_status
from fieldpost.outbound.client import HttpAnswer, NoAnswer
from fieldpost.outbound.guard import Blocked
from fieldpost.outbound.progress import HttpPhase
from fieldpost.outbound.retry_after import retry_after_s

_PHASES = {"resolve": HttpPhase.RESOLVE, "connect": HttpPhase.CONNECT, "answer": HttpPhase.ANSWER}


def classify(observed: Mapping[str, Any], now: datetime) -> ReadAnswer | NoAnswer | Blocked:
    """The result for the target, from the child's answer."""
    if "fault" in observed:
        return ReadAnswer(Verdict.FAILED, str(observed["fault"]))
    answers, failure = observed["answers"], observed["failure"]
    wrong = [one for one in answers if not 200 <= one["status"] < 300]
    if observed["is_ok"] and answers:
        return _by_answer(answers[-1], now)
    if wrong:
        return _by_answer(wrong[-1], now)
    if failure is not None and failure["kind"] == "guard":
        host, _, reason = failure["reason"].partition(" may not be reached: ")
        return Blocked(host, reason or host)
    if failure is not None and failure["kind"] in _PHASES:
        phase = _PHASES[failure["kind"]]
        return NoAnswer(failure["reason"], phase, is_sent=phase is HttpPhase.ANSWER)
    if answers:
        said = _answer(answers[-1])
        return ReadAnswer(Verdict.TRANSIENT, f"Apprise reports a failure although the answer was {answer_text(said)}")
    return ReadAnswer(Verdict.TRANSIENT, failure["reason"] if failure else "Apprise sent no request")


def _by_answer(one: Mapping[str, Any], now: datetime) -> ReadAnswer:
    asked_s = retry_after_s(one["retry_after"], now)
    return by_status(_answer(one), None if asked_s is None else timedelta(seconds=asked_s))


def _answer(one: Mapping[str, Any]) -> HttpAnswer:
    return HttpAnswer(int(one["status"]), {}, str(one["text"]).encode(), is_whole=False)
