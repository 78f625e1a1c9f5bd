"""Each documented answer of an incoming webhook has one meaning."""

from datetime import timedelta

import pytest

from fieldpost.central.adapters.answers import Verdict
from fieldpost.central.adapters.slack.classify import classify
from support.answers import answer


@pytest.mark.req("CHN-02")
@pytest.mark.dec("DEC-60")
@pytest.mark.parametrize(
    ("status", "said", "verdict", "text"),
    [
        (200, "ok", Verdict.DELIVERED, "200 ok"),
        (200, "<html>log in</html>", Verdict.TRANSIENT, "Slack answers ok"),
        (204, "", Verdict.TRANSIENT, "Slack answers ok"),
        (400, "invalid_payload", Verdict.FAILED, "400 invalid_payload"),
        (400, "no_text", Verdict.FAILED, "400 no_text"),
        (403, "action_prohibited", Verdict.FAILED, "403 action_prohibited"),
        (403, "invalid_token", Verdict.FAILED, "403 invalid_token"),
        (404, "no_service", Verdict.FAILED, "404 no_service"),
        (404, "no_team", Verdict.FAILED, "404 no_team"),
        (404, "channel_not_found", Verdict.FAILED, "404 channel_not_found"),
        (410, "channel_is_archived", Verdict.FAILED, "410 channel_is_archived"),
        (302, "", Verdict.FAILED, "redirects are not followed"),
        (408, "", Verdict.TRANSIENT, "408"),
        (500, "rollup_error", Verdict.TRANSIENT, "500 rollup_error"),
        (503, "", Verdict.TRANSIENT, "503"),
    ],
)
def test_an_answer_has_one_meaning(status: int, said: str, verdict: Verdict, text: str) -> None:
    read = classify(answer(status, said), None)
    assert read.verdict is verdict
    assert text in read.text


@pytest.mark.parametrize("said", ["ok", "", '{"success":true}'])
def test_mattermost_and_rocket_chat_accept_with_any_2xx(said: str) -> None:
    assert classify(answer(200, said), None, is_slack=False).verdict is Verdict.DELIVERED


@pytest.mark.req("CHN-02")
@pytest.mark.parametrize(("header_s", "wait_s"), [(7, 7), (None, 30)])
def test_too_many_requests_pause_the_hook(header_s: int | None, wait_s: int) -> None:
    read = classify(answer(429, "rate_limited"), None if header_s is None else timedelta(seconds=header_s))
    assert (read.verdict, read.wait) == (Verdict.PAUSED, timedelta(seconds=wait_s))
