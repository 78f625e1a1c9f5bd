"""Each documented answer of the Bot API has one meaning."""

from datetime import timedelta

import pytest

from fieldpost.central.adapters.answers import Verdict
from fieldpost.central.adapters.telegram.classify import classify
from support.answers import answer


def error(status: int, description: str, **parameters: object) -> dict[str, object]:
    said: dict[str, object] = {"ok": False, "error_code": status, "description": description}
    return {**said, "parameters": parameters} if parameters else said


@pytest.mark.req("CHN-02")
@pytest.mark.dec("DEC-60")
@pytest.mark.parametrize(
    ("status", "said", "verdict", "text"),
    [
        (200, {"ok": True, "result": {"message_id": 1}}, Verdict.DELIVERED, "200 ok"),
        (200, "<html>a proxy</html>", Verdict.TRANSIENT, "not an answer of the Bot API"),
        (200, {"ok": False}, Verdict.TRANSIENT, "not an answer of the Bot API"),
        (400, error(400, "Bad Request: chat not found"), Verdict.FAILED, "400 Bad Request: chat not found"),
        (400, error(400, "Bad Request: message is too long"), Verdict.FAILED, "message is too long"),
        (401, error(401, "Unauthorized"), Verdict.HELD, "the bot's token is not valid: 401 Unauthorized"),
        (403, error(403, "Forbidden: bot was blocked by the user"), Verdict.FAILED, "bot was blocked by the user"),
        (403, error(403, "Forbidden: bot was kicked from the group chat"), Verdict.FAILED, "kicked"),
        (404, error(404, "Not Found"), Verdict.HELD, "the bot's token is not valid: 404 Not Found"),
        (408, "", Verdict.TRANSIENT, "408"),
        (413, "", Verdict.FAILED, "413"),
        (301, "", Verdict.FAILED, "301"),
        (500, error(500, "Internal Server Error"), Verdict.TRANSIENT, "500 Internal Server Error"),
        (502, "<html>Bad Gateway</html>", Verdict.TRANSIENT, "502"),
    ],
)
def test_an_answer_has_one_meaning(status: int, said: object, verdict: Verdict, text: str) -> None:
    read = classify(answer(status, said), None)
    assert read.verdict is verdict
    assert text in read.text


@pytest.mark.req("CHN-02")
@pytest.mark.parametrize(
    ("parameters", "header_s", "wait_s"),
    [
        ({"retry_after": 35}, None, 35),
        ({"retry_after": 35}, 7, 35),
        ({}, 7, 7),
        ({"retry_after": "soon"}, None, 60),
        ({"retry_after": -1}, None, 60),
        ({}, None, 60),
    ],
)
def test_too_many_requests_pause_the_chat_for_the_time_that_telegram_requests(
    parameters: dict[str, object], header_s: int | None, wait_s: int
) -> None:
    said = error(429, "Too Many Requests: retry after 35", **parameters)
    read = classify(answer(429, said), None if header_s is None else timedelta(seconds=header_s))
    assert read.verdict is Verdict.PAUSED
    assert read.wait == timedelta(seconds=wait_s)


def test_a_group_that_became_a_supergroup_is_followed() -> None:
    said = error(400, "Bad Request: group chat was upgraded to a supergroup chat", migrate_to_chat_id=-1001234567890)
    read = classify(answer(400, said), None)
    assert (read.verdict, read.address) == (Verdict.MOVED, "-1001234567890")
