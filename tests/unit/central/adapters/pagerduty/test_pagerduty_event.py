"""The event of a notification: its key, its action and its limits."""

import json
from typing import Any

import pytest

from fieldpost.central.adapters.pagerduty.event import EVENT_BYTES_MAX, SUMMARY_MAX, pagerduty_event
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.notification import Provenance, Severity
from fieldpost.testing.world import World, envelope

WORLD = World({}, ("a", "b"), list)


def event_of(sent: Envelope) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(b"{" + pagerduty_event(sent).message)
    return event


@pytest.mark.req("CHN-07", "DEC-88")
def test_the_key_is_the_incident_else_the_id() -> None:
    plain = envelope(WORLD, provenance=Provenance("plant-north"), link="https://fieldpost.example/n/1")
    event = event_of(plain)
    assert (event["event_action"], event["dedup_key"]) == ("trigger", plain.notification_id)
    assert event["payload"]["source"] == "plant-north"
    assert event["payload"]["severity"] == "error"
    assert event["links"][0]["href"] == event["client_url"] == "https://fieldpost.example/n/1"
    raised = event_of(envelope(WORLD, incident="pump-3", severity=Severity.CRITICAL))
    assert (raised["event_action"], raised["dedup_key"]) == ("trigger", "pump-3")
    assert raised["payload"]["custom_details"]["id"] == plain.notification_id
    assert raised["payload"]["severity"] == "critical"
    cleared = event_of(envelope(WORLD, incident="pump-3", is_cleared=True))
    assert (cleared["event_action"], cleared["dedup_key"]) == ("resolve", "pump-3")


@pytest.mark.req("CHN-07", "DEC-88")
def test_cleared_notification_without_an_incident_triggers_an_alert() -> None:
    """No alert has its key, so PagerDuty would accept a resolve, drop it, and nobody would see the text."""
    sent = envelope(WORLD, is_cleared=True)
    event = event_of(sent)
    assert (event["event_action"], event["dedup_key"]) == ("trigger", sent.notification_id)
    assert event["payload"]["summary"] == sent.subject


@pytest.mark.req("CHN-05")
@pytest.mark.parametrize("filler", ["x", "ä", "\x01"])
def test_summary_and_event_stay_within_the_limits(filler: str) -> None:
    fitted = pagerduty_event(envelope(WORLD, subject="s" * 998, body=filler * (256 * 1024 // len(filler.encode()))))
    assert len(fitted.message) <= EVENT_BYTES_MAX
    payload = json.loads(b"{" + fitted.message)["payload"]
    assert len(payload["summary"]) <= SUMMARY_MAX
    assert payload["summary"] == "s" * 998
    assert (fitted.truncated_to is None) == (filler != "\x01")
