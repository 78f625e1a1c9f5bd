"""Twilio's own client is content with our fake of Twilio, and our adapter asks as it does."""

import asyncio

import pytest
from twilio.base.exceptions import TwilioRestException
from twilio.http.http_client import TwilioHttpClient
from twilio.http.response import Response
from twilio.rest import Client

from fieldpost.central.adapters.sms.adapter import SmsAdapter
from fieldpost.core.delivery.outcome import Delivered
from fieldpost.core.delivery.receipt import Receipt, ReceiptStatus
from fieldpost.core.secret import Secret
from fieldpost.testing import World
from fieldpost.testing.providers import FakeTwilio
from fieldpost.testing.world import envelope

ACCOUNT = "AC" + "0123456789abcdef" * 2
TOKEN = "canary-of-the-auth-token"


class _Local(TwilioHttpClient):
    """Sends requests to the fake instead of api.twilio.com."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def request(self, method: str, url: str, *rest: object, **options: object) -> Response:
        return super().request(method, url.replace("https://api.twilio.com", self._url), *rest, **options)  # type: ignore[arg-type]


async def test_client_sends_queries_and_parses_each_error() -> None:
    async with FakeTwilio(ACCOUNT, TOKEN) as twilio:
        twilio.numbers["+15005550004"] = 21610

        def check() -> None:
            client = Client(ACCOUNT, TOKEN, http_client=_Local(twilio.url))
            sent = client.messages.create(to="+4915112345678", from_="+15005550006", body="Pump 3 is hot")
            assert sent.sid is not None
            assert sent.status == "queued"
            twilio.settle(sent.sid, "undelivered", 30003)
            asked = client.messages(sent.sid).fetch()
            assert (asked.status, asked.error_code) == ("undelivered", 30003)
            with pytest.raises(TwilioRestException) as refused:
                client.messages.create(to="+15005550004", from_="+15005550006", body="x")
            assert refused.value.code == 21610
            wrong = Client(ACCOUNT, "wrong", http_client=_Local(twilio.url))
            with pytest.raises(TwilioRestException) as denied:
                wrong.messages.create(to="+4915112345678", from_="+15005550006", body="x")
            assert denied.value.code == 20003

        await asyncio.to_thread(check)
        assert [copy.text for copy in twilio.copies] == ["Pump 3 is hot"]


@pytest.mark.req("CHN-08")
async def test_adapter_polls_receipts_and_omits_unknown_ones() -> None:
    async with FakeTwilio(ACCOUNT, TOKEN) as twilio:
        settings = {
            "dialect": "twilio",
            "url": twilio.url,
            "username": ACCOUNT,
            "password": Secret(TOKEN),
            "sender": "+15005550006",
        }
        adapter = SmsAdapter(deadline_s=5)
        numbers = tuple(f"+491511234567{number}" for number in range(4))
        outcome = await adapter.deliver(envelope(World(settings, numbers, list)))
        assert isinstance(outcome, Delivered)
        ids = [str(target.provider_id) for target in outcome.targets]
        assert set(ids) == set(twilio.messages)
        twilio.settle(ids[0], "delivered")
        twilio.settle(ids[1], "undelivered", 30008)
        twilio.settle(ids[2], "failed", 30005)
        assert await adapter.ask(settings, [*ids, "SMunknown"]) == [
            Receipt(provider_id=ids[0], status=ReceiptStatus.DELIVERED),
            Receipt(provider_id=ids[1], status=ReceiptStatus.DUE, error="undelivered: error 30008"),
            Receipt(provider_id=ids[2], status=ReceiptStatus.FAILED, error="failed: error 30005"),
            Receipt(provider_id=ids[3], status=ReceiptStatus.IN_TRANSIT),
        ]
        twilio.on().close()
        assert await adapter.ask(settings, ids) == []
        await adapter.close()
