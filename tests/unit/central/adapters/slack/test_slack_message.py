"""Messages for incoming webhooks: within Slack's limits, valid by Slack's own models, literal."""

import html
import json
from typing import Any

import pytest
from slack_sdk.models.blocks import Block

from fieldpost.central.adapters.slack.message import chat_text, slack_blocks
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.notification import Provenance, Severity
from fieldpost.testing.world import World, envelope

WORLD = World({}, ("a", "b"), list)
HOSTILE = "*bold* _it_ `code` <!channel> <@U123> <https://x.example|y> &amp; :smile: @here ```x``` ~s~ > quote\n# h"


def made(sent: Envelope) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(slack_blocks(sent).message)
    for block in Block.parse_all(message["blocks"]):
        block.validate_json()
    return message


@pytest.mark.req("CHN-06", "CHN-07")
def test_a_message_has_header_sections_and_origin() -> None:
    sent = envelope(
        WORLD,
        severity=Severity.CRITICAL,
        provenance=Provenance("plant-north"),
        link="https://fieldpost.example/notifications/1?a=b&c=d",
    )
    message = made(sent)
    assert [block["type"] for block in message["blocks"]] == ["header", "section", "context"]
    assert message["text"] == "Pump 3 läuft heiß"
    assert message["blocks"][1]["text"]["text"] == "It has 93 °C.\n.\nCall somebody."
    origin, link = message["blocks"][2]["elements"]
    assert origin["text"] == f"critical · plant-north · {sent.notification_id}"
    assert link["text"] == "<https://fieldpost.example/notifications/1?a=b&amp;c=d|Open in Fieldpost>"


@pytest.mark.req("CHN-06")
def test_nothing_in_subject_and_body_is_markup() -> None:
    message = made(envelope(WORLD, subject=HOSTILE.replace("\n", " "), body=HOSTILE))
    texts = [block["text"] for block in message["blocks"][:2]]
    assert {(text["type"], text["emoji"]) for text in texts} == {("plain_text", False)}
    assert [html.unescape(text["text"]) for text in texts] == [HOSTILE.replace("\n", " "), HOSTILE]
    assert not {"<", ">"} & set(message["text"])
    assert message["mrkdwn"] is False


@pytest.mark.req("CHN-05")
@pytest.mark.parametrize("filler", ["x", "&", "<", "ä\n", "😀", "x" * 2999 + "&"])
def test_long_body_is_split_and_truncated(filler: str) -> None:
    body = filler * (256 * 1024 // len(filler.encode()))
    sent = envelope(WORLD, body=body)
    message = made(sent)
    sections = [block["text"]["text"] for block in message["blocks"][1:-1]]
    assert max(map(len, sections)) <= 3000
    assert 11_000 <= sum(map(len, sections)) <= 12_000
    shown = "".join(map(html.unescape, sections)).replace("\n", "")
    assert shown.endswith("…")
    assert body.replace("\n", "").startswith(shown[:-1])
    assert message["blocks"][-1]["elements"][0]["text"] == sent.notification_id
    assert slack_blocks(sent).truncated_to is not None


def test_a_long_subject_stays_whole_in_sections() -> None:
    for subject in ("x" * 151, "&" * 998):
        blocks = made(envelope(WORLD, subject=subject, body=""))["blocks"]
        assert {block["type"] for block in blocks[:-1]} == {"section"}
        assert html.unescape("".join(block["text"]["text"] for block in blocks[:-1])) == subject


@pytest.mark.req("CHN-06")
@pytest.mark.parametrize("body", [HOSTILE, "````\nescaped\n````", "@all @channel **x**"])
def test_style_text_is_one_code_block_that_its_content_cannot_end(body: str) -> None:
    sent = envelope(WORLD, body=body, link="https://fieldpost.example/n/1")
    text = json.loads(chat_text(sent).message)["text"]
    fence, *lines = text.splitlines()
    assert set(fence) == {"`"}
    assert lines[-2:] == [fence + "", "https://fieldpost.example/n/1"]
    assert all(fence not in line for line in lines[:-2])
    assert "\n".join(lines[:-2]) == f"{sent.subject}\n\n{body}\n\n{sent.notification_id}"


@pytest.mark.req("CHN-05")
def test_style_text_is_truncated_to_4000_characters() -> None:
    fitted = chat_text(envelope(WORLD, body="x" * 100_000))
    assert 3990 <= len(json.loads(fitted.message)["text"]) <= 4000
