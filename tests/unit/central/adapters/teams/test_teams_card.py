"""The Adaptive Card of a notification. tests/console renders it with the official renderer."""

import json
from typing import Any

import pytest

from fieldpost.central.adapters.teams.card import CARD_BYTES_MAX, teams_card
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.notification import Provenance, Severity
from fieldpost.testing.world import World, envelope

WORLD = World({}, ("a", "b"), list)


def card_of(sent: Envelope) -> dict[str, Any]:
    message = json.loads(teams_card(sent).message)
    assert message["type"] == "message"
    (attachment,) = message["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card: dict[str, Any] = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    return card


def texts(card: dict[str, Any]) -> list[str]:
    return ["".join(run["text"] for run in block["inlines"]) for block in card["body"]]


@pytest.mark.req("CHN-06", "CHN-07")
def test_a_card_has_subject_body_origin_and_a_button() -> None:
    sent = envelope(
        WORLD, severity=Severity.CRITICAL, provenance=Provenance("plant-north"), link="https://fieldpost.example/n/1"
    )
    card = card_of(sent)
    assert texts(card) == [
        "Pump 3 läuft heiß",
        "It has 93 °C.\n.\nCall somebody.",
        f"critical · plant-north · {sent.notification_id}",
    ]
    assert card["body"][0]["inlines"][0]["color"] == "Attention"
    assert [action["url"] for action in card["actions"]] == ["https://fieldpost.example/n/1"]


@pytest.mark.req("CHN-06")
def test_all_texts_are_text_runs_and_no_run_has_a_macro() -> None:
    body = "**x** [a](b) <at>Ann</at> {{DATE(2026-11-15T08:00:00Z, SHORT)}} {{{TIME(2026-11-15T08:00:00Z)}} {{x}}"
    card = card_of(envelope(WORLD, body=body))
    runs = [run for block in card["body"] for run in block["inlines"]]
    assert {run["type"] for run in runs} == {"TextRun"}
    assert not any("{{DATE(" in run["text"] or "{{TIME(" in run["text"] for run in runs)
    assert texts(card)[1] == body


@pytest.mark.parametrize(("is_cleared", "color"), [(True, "Good"), (False, "Warning")])
def test_the_color_of_the_subject_follows_the_state(is_cleared: bool, color: str) -> None:
    card = card_of(envelope(WORLD, severity=Severity.WARNING, incident="pump-3", is_cleared=is_cleared))
    assert card["body"][0]["inlines"][0]["color"] == color


@pytest.mark.req("CHN-05")
@pytest.mark.parametrize("filler", ["x", "ä", "😀", '"', "\x01", "{{DATE("])
def test_long_body_is_truncated_to_18000_bytes_of_json(filler: str) -> None:
    sent = envelope(WORLD, body=filler * (200_000 // len(filler)))
    fitted = teams_card(sent)
    assert CARD_BYTES_MAX - 60 <= len(fitted.message) <= CARD_BYTES_MAX
    subject, body, origin = texts(card_of(sent))
    assert (subject, origin) == (sent.subject, sent.notification_id)
    assert body.endswith("…")
    assert fitted.truncated_to == len(subject) + len(body)
