"""Each documented answer of an ntfy server has one meaning."""

from datetime import timedelta

import pytest

from fieldpost.central.adapters.answers import Verdict
from fieldpost.central.adapters.ntfy.classify import classify
from support.answers import answer


@pytest.mark.req("CHN-02")
@pytest.mark.parametrize(
    ("status", "said", "verdict", "text"),
    [
        (200, {"id": "sPs71M8A2T", "event": "message"}, Verdict.DELIVERED, "200"),
        (400, {"code": 40009, "error": "invalid request: topic invalid"}, Verdict.FAILED, "400 invalid request: topic"),
        (401, {"code": 40101, "error": "unauthorized"}, Verdict.HELD, "denied access: 401 unauthorized"),
        (403, {"code": 40301, "error": "forbidden"}, Verdict.HELD, "denied access: 403 forbidden"),
        (404, {"code": 40401, "error": "page not found"}, Verdict.FAILED, "404 page not found"),
        (408, "", Verdict.TRANSIENT, "408"),
        (413, {"code": 41301, "error": "attachment too large"}, Verdict.FAILED, "413 attachment too large"),
        (500, {"code": 50001, "error": "internal server error"}, Verdict.TRANSIENT, "500 internal server error"),
        (507, {"code": 50701, "error": "insufficient storage"}, Verdict.TRANSIENT, "507"),
        (302, "", Verdict.FAILED, "redirects are not followed"),
    ],
)
def test_an_answer_has_one_meaning(status: int, said: object, verdict: Verdict, text: str) -> None:
    read = classify(answer(status, said), None)
    assert read.verdict is verdict
    assert text in read.text


@pytest.mark.req("CHN-02")
@pytest.mark.parametrize(("code", "header_s", "wait_s"), [(42901, None, 60), (42908, None, 3600), (42908, 90, 90)])
def test_too_many_requests_pause_the_channel(code: int, header_s: int | None, wait_s: int) -> None:
    said = {"code": code, "error": "limit reached"}
    read = classify(answer(429, said), None if header_s is None else timedelta(seconds=header_s))
    assert (read.verdict, read.wait) == (Verdict.CHANNEL_PAUSED, timedelta(seconds=wait_s))
