"""The JSON of an ntfy message keeps title, id and link, within both limits of the server."""

import json

import pytest

from fieldpost.central.adapters.ntfy.message import JSON_BYTES_MAX, MESSAGE_BYTES_MAX, ntfy_json
from fieldpost.core.notification import Severity
from fieldpost.testing.world import World, envelope

WORLD = World({}, ("a", "b"), list)


@pytest.mark.req("CHN-07")
@pytest.mark.parametrize(
    ("severity", "is_cleared", "priority"),
    [
        (None, False, 3),
        (Severity.INFO, False, 2),
        (Severity.WARNING, False, 3),
        (Severity.ERROR, False, 4),
        (Severity.CRITICAL, False, 5),
        (Severity.CRITICAL, True, 3),
    ],
)
def test_the_priority_follows_the_severity(severity: Severity | None, is_cleared: bool, priority: int) -> None:
    sent = envelope(WORLD, severity=severity, is_cleared=is_cleared, link="https://fieldpost.example/n/1")
    message = json.loads("{" + ntfy_json(sent).message + "}")
    assert message["priority"] == priority
    assert message["title"] == "Pump 3 läuft heiß"
    assert message["click"] == "https://fieldpost.example/n/1"
    assert message["sequence_id"] == sent.notification_id
    assert message["message"].startswith("It has 93 °C.\n.\nCall somebody.\n\n")


@pytest.mark.req("CHN-05")
@pytest.mark.parametrize("filler", ["x", "ä", "😀", '"', "\n", "\x01"])
def test_long_body_is_truncated_to_both_limits(filler: str) -> None:
    fitted = ntfy_json(envelope(WORLD, subject="s" * 900, body="x" + filler * 20_000 + "x"))
    members = "{" + fitted.message + "}"
    message = json.loads(members)
    assert len(message["message"].encode()) <= MESSAGE_BYTES_MAX
    assert len(members.encode()) + 64 <= JSON_BYTES_MAX
    assert message["title"] == "s" * 900
    assert "…\n\n" in message["message"]
    assert fitted.truncated_to is not None
