"""Each documented answer of a workflow has one meaning."""

from datetime import timedelta

import pytest

from fieldpost.central.adapters.answers import Verdict
from fieldpost.central.adapters.teams.classify import classify
from support.answers import answer


@pytest.mark.req("CHN-02", "OPN-07")
@pytest.mark.dec("DEC-60")
@pytest.mark.parametrize(
    ("status", "said", "verdict", "text"),
    [
        (202, "", Verdict.DELIVERED, "202: accepted by the flow"),
        (200, "1", Verdict.DELIVERED, "200: accepted by the flow"),
        (
            200,
            "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error 413 with …",
            Verdict.FAILED,
            "413",
        ),
        (200, "Microsoft Teams endpoint returned HTTP error 429 with ContextId …", Verdict.PAUSED, "429"),
        (200, "Microsoft Teams endpoint returned HTTP error 500", Verdict.TRANSIENT, "500"),
        (200, "no HTTP error 200 at all", Verdict.DELIVERED, "accepted by the flow"),
        (400, {"error": {"code": "TriggerInputSchemaMismatch"}}, Verdict.FAILED, "TriggerInputSchemaMismatch"),
        (401, {"error": {"code": "DirectApiAuthorizationRequired"}}, Verdict.FAILED, "DirectApiAuthorizationRequired"),
        (403, "", Verdict.FAILED, "403"),
        (404, {"error": {"code": "WorkflowNotFound"}}, Verdict.FAILED, "WorkflowNotFound"),
        (408, "", Verdict.TRANSIENT, "408"),
        (410, "", Verdict.FAILED, "410"),
        (413, "", Verdict.FAILED, "413"),
        (429, "", Verdict.PAUSED, "429"),
        (502, {"error": {"code": "NoResponse"}}, Verdict.TRANSIENT, "NoResponse"),
        (504, "", Verdict.TRANSIENT, "504"),
    ],
)
def test_an_answer_has_one_meaning(status: int, said: object, verdict: Verdict, text: str) -> None:
    read = classify(answer(status, said), None)
    assert read.verdict is verdict
    assert text in read.text
    assert read.wait == (timedelta(seconds=60) if verdict is Verdict.PAUSED else None)


@pytest.mark.req("CHN-02")
def test_pause_lasts_as_long_as_teams_requests() -> None:
    assert classify(answer(429), timedelta(seconds=9)).wait == timedelta(seconds=9)
