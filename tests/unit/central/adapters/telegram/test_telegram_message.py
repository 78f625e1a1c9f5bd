"""The text of a Telegram message keeps subject, id and link, whatever the body."""

import json

import pytest

from fieldpost.central.adapters.telegram.message import UNITS_MAX, telegram_text
from fieldpost.core.delivery.fitting import in_utf16_units
from fieldpost.core.notification import Provenance, Severity
from fieldpost.testing.world import World, envelope

WORLD = World({}, ("1", "2"), list)


@pytest.mark.req("CHN-06", "CHN-07")
def test_a_message_has_subject_body_origin_and_link() -> None:
    sent = envelope(
        WORLD,
        severity=Severity.CRITICAL,
        provenance=Provenance("plant-north"),
        link="https://fieldpost.example/notifications/1",
    )
    fitted = telegram_text(sent)
    text, entities = fitted.message
    assert text.splitlines() == [
        "Pump 3 läuft heiß",
        "",
        "It has 93 °C.",
        ".",
        "Call somebody.",
        "",
        f"critical · plant-north · {sent.notification_id}",
        "https://fieldpost.example/notifications/1",
    ]
    assert json.loads(entities) == [{"type": "bold", "offset": 0, "length": 17}]
    assert fitted.truncated_to is None


@pytest.mark.req("CHN-05")
@pytest.mark.parametrize("filler", ["x", "ä", "😀", "<b>&", "e\u0301"])
def test_long_body_is_truncated_to_the_limit_in_utf_16_units(filler: str) -> None:
    sent = envelope(WORLD, subject="😀 hot", body=filler * 50_000, link="https://fieldpost.example/n/1")
    fitted = telegram_text(sent)
    text, entities = fitted.message
    assert UNITS_MAX - 4 <= in_utf16_units(text) <= UNITS_MAX
    assert text.startswith(f"😀 hot\n\n{filler}")
    assert text.endswith(f"…\n\n{sent.notification_id}\nhttps://fieldpost.example/n/1")
    assert json.loads(entities)[0]["length"] == 6
    assert fitted.truncated_to == len(text) - len(f"\n\n\n\n{sent.notification_id}\nhttps://fieldpost.example/n/1")
