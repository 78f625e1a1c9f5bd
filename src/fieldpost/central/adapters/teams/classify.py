"""The meaning of an answer of a Teams workflow.

answer                                 target     why
2xx                                    delivered  accepted by the flow; whether it posted the card is not known
2xx whose text says "HTTP error N"     as N       the retired connectors answered so
400, 401, 403, 404, 410, 413, 4xx      failed     the flow is off, was deleted or rejects the card
429                                    paused     for Retry-After, else 60 s
408, 5xx                               transient
"""

import re
from dataclasses import replace
from datetime import timedelta

from fieldpost.central.adapters.answers import ReadAnswer, Verdict, by_status
from fieldpost.outbound.client import HttpAnswer

PAUSE = timedelta(seconds=60)
REMARK = "accepted by the flow"
_HTTP_ERROR = re.compile(rb"HTTP error ([1-5][0-9]{2})\b")


def classify(answer: HttpAnswer, retry_after: timedelta | None) -> ReadAnswer:
    if 200 <= answer.status < 300:
        found = _HTTP_ERROR.search(answer.body)
        if found is None or found[1].startswith(b"2"):
            return ReadAnswer(Verdict.DELIVERED, f"{answer.status}: {REMARK}")
        answer = replace(answer, status=int(found[1]))
    return by_status(answer, retry_after, pause=PAUSE)
