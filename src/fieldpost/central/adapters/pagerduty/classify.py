"""The meaning of an answer of PagerDuty's Events API v2.

answer          target     why
202             delivered
400, other 4xx  failed     the event or its routing key is invalid
429             paused     too many events of this integration: 2 min, or Retry-After
408, 5xx        transient
"""

from datetime import timedelta

from fieldpost.central.adapters.answers import ReadAnswer, Verdict, by_status, object_in, text_in
from fieldpost.outbound.client import HttpAnswer

PAUSE = timedelta(minutes=2)


def classify(answer: HttpAnswer, retry_after: timedelta | None) -> ReadAnswer:
    said = object_in(answer)
    words = text_in(said, "message")
    errors = said.get("errors")
    if words is not None and isinstance(errors, list) and errors:
        words = f"{words}: {'; '.join(map(str, errors))}"
    read = by_status(answer, retry_after, words, pause=PAUSE)
    if read.verdict is Verdict.DELIVERED and answer.status != 202:
        return ReadAnswer(Verdict.TRANSIENT, f"{read.text}: PagerDuty answers 202")
    return read
