"""Each documented answer of the Events API v2 has one meaning."""

from datetime import timedelta

import pytest

from fieldpost.central.adapters.answers import Verdict
from fieldpost.central.adapters.pagerduty.classify import classify
from support.answers import answer

INVALID = {"status": "invalid event", "message": "Event object is invalid", "errors": ["'routing_key' is invalid"]}


@pytest.mark.req("CHN-02")
@pytest.mark.dec("DEC-60")
@pytest.mark.parametrize(
    ("status", "said", "verdict", "text"),
    [
        (202, {"status": "success", "message": "Event processed"}, Verdict.DELIVERED, "202 Event processed"),
        (200, "<html>a proxy</html>", Verdict.TRANSIENT, "PagerDuty answers 202"),
        (400, INVALID, Verdict.FAILED, "400 Event object is invalid: 'routing_key' is invalid"),
        (403, "", Verdict.FAILED, "403"),
        (404, "", Verdict.FAILED, "404"),
        (408, "", Verdict.TRANSIENT, "408"),
        (413, "", Verdict.FAILED, "413"),
        (429, {"status": "throttle exceeded"}, Verdict.PAUSED, "too many requests: 429"),
        (500, "", Verdict.TRANSIENT, "500"),
        (503, "", Verdict.TRANSIENT, "503"),
    ],
)
def test_an_answer_has_one_meaning(status: int, said: object, verdict: Verdict, text: str) -> None:
    read = classify(answer(status, said), None)
    assert read.verdict is verdict
    assert text in read.text
    assert read.wait == (timedelta(minutes=2) if verdict is Verdict.PAUSED else None)
