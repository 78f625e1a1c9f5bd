"""The clients of Slack and PagerDuty are content with our fakes, so the fakes are not our misreading."""

import asyncio
import ssl

import pytest
from pagerduty import EventsApiV2Client, HttpError
from slack_sdk.webhook import WebhookClient

from fieldpost.testing.providers import FakePagerDuty, FakeSlack
from support.provider_worlds import AUTHORITY, server_context

KEY = "0123456789abcdef0123456789abcdef"


async def test_slack_client_posts_and_parses_each_error() -> None:
    async with FakeSlack() as slack:
        slack.errors["gone"] = (404, "no_service")

        def post(name: str, **message: object) -> tuple[int, str, str | None]:
            response = WebhookClient(slack.hook(name)).send(**message)  # type: ignore[arg-type]
            return response.status_code, response.body, response.headers.get("Retry-After")

        def check() -> None:
            assert post("room", text="Pump 3 is hot")[:2] == (200, "ok")
            assert post("room", text="Pump 3 is hot") == (429, "rate_limited", "1")
            assert post("gone", text="x")[:2] == (404, "no_service")
            long = {"type": "section", "text": {"type": "plain_text", "text": "x" * 3001}}
            assert post("other", text="x", blocks=[long])[:2] == (400, "invalid_blocks")

        await asyncio.to_thread(check)
        assert [copy.text for copy in slack.copies] == ["Pump 3 is hot"]


async def test_pagerduty_client_triggers_and_resolves() -> None:
    trusting = ssl.create_default_context()
    AUTHORITY.configure_trust(trusting)
    async with FakePagerDuty({"desk": KEY}, tls=server_context()) as pagerduty:

        def check() -> None:
            with EventsApiV2Client(KEY, base_url=pagerduty.url, verify=trusting) as client:
                assert client.trigger("Pump 3 is hot", "plant-north", dedup_key="pump-3") == "pump-3"
                assert pagerduty.alerts == {("desk", "pump-3"): "Pump 3 is hot"}
                client.resolve("pump-3")
                assert pagerduty.alerts == {}
            with (
                EventsApiV2Client("0" * 32, base_url=pagerduty.url, verify=trusting) as wrong,
                pytest.raises(HttpError),
            ):
                wrong.trigger("x", "y")

        await asyncio.to_thread(check)
