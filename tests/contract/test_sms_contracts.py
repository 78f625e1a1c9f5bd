"""The sms adapter passes the suite that every adapter must pass, in its dialects."""

from contextlib import AbstractAsyncContextManager

import pytest

from fieldpost.central.adapters.sms.adapter import SmsAdapter
from fieldpost.core.delivery.adapter import Adapter
from fieldpost.core.secret import Secret
from fieldpost.testing import AdapterContract, Behaviour, World
from fieldpost.testing.http.rules import HttpReaction
from fieldpost.testing.providers import FakeKannel, FakeSmsRouter, FakeTwilio
from fieldpost.testing.providers.twilio import twilio_error
from support.provider_worlds import ProviderWorld, provider_outbound

ACCOUNT = "AC" + "0123456789abcdef" * 2
PASSWORD = "canary-of-the-token"
NUMBERS = ("+4915112345678", "+4915112345679")
MANY = tuple(f"+491511234560{number}" for number in range(10))
QUERY = "username={username}&password={password}&number={number}&text={text}"


class SmsContract(AdapterContract):
    good_targets = ("+4915112345678", "+1 212 555 0123", "+44-20-7946-0000")
    limits_requests = True
    bad_targets = ("", "015112345678", "+49151x", "+1234567890123456", "+", "+４９１５１１２３４５６７", "+0151123456")
    bad_settings = (
        ("dialect", "smpp"),
        ("segments_max", 0),
        ("url", "ftp://x"),
        ("url", "http://10.0.0.1/x"),
        ("plain_http", "yes"),
        ("sender", "a\nb"),
        ("password", 5),
    )

    def make(self, deadline_s: float) -> Adapter:
        return _Closing(outbound=provider_outbound(), deadline_s=deadline_s)


@pytest.mark.req("EVT-04", "CHN-02", "CHN-05", "CHN-06", "CHN-07", "CHN-08")
@pytest.mark.dec("DEC-61")
class TestTwilioContract(SmsContract):
    reports_failures = True

    def world(self, behaviour: Behaviour) -> AbstractAsyncContextManager[World]:
        return ProviderWorld(
            server=lambda tls: FakeTwilio(ACCOUNT, PASSWORD, is_limited=False, tls=tls),
            settings=lambda url: {
                "dialect": "twilio",
                "url": url,
                "username": ACCOUNT,
                "password": Secret(PASSWORD),
                "sender": "+15005550006",
            },
            targets=NUMBERS,
            many=MANY,
            refuses=twilio_error(400, 21610, "Attempt to send to unsubscribed recipient"),
            too_many=twilio_error(429, 20429, "Too Many Requests"),
        ).behaving(behaviour)


@pytest.mark.req("EVT-04", "CHN-02", "CHN-05", "CHN-06", "CHN-07")
class TestRouterContract(SmsContract):
    bad_settings = (*SmsContract.bad_settings, ("answers", "OK"), ("body", "{nobody}"), ("method", "DELETE"))

    def world(self, behaviour: Behaviour) -> AbstractAsyncContextManager[World]:
        return ProviderWorld(
            server=lambda tls: FakeSmsRouter("admin", PASSWORD, tls=tls),
            settings=lambda url: {
                "dialect": "http",
                "url": f"{url}/cgi-bin/sms_send?{QUERY}",
                "username": "admin",
                "password": Secret(PASSWORD),
                "method": "GET",
                "number_format": "00",
                "answers": "OK=delivered, ERROR=retry, TIMEOUT=retry, WRONG_NUMBER=failed",
            },
            targets=NUMBERS,
            many=MANY,
            refuses=HttpReaction(body=b"WRONG_NUMBER"),
            too_many=HttpReaction(status=429),
        ).behaving(behaviour)


@pytest.mark.req("EVT-04", "CHN-05", "CHN-06", "CHN-07", "CHN-08")
@pytest.mark.dec("DEC-61")
class TestKannelContract(SmsContract):
    limits_requests = False
    bad_settings = (*SmsContract.bad_settings, ("method", "GET"))

    def world(self, behaviour: Behaviour) -> AbstractAsyncContextManager[World]:
        return ProviderWorld(
            server=lambda tls: FakeKannel("fieldpost", PASSWORD, tls=tls),
            settings=lambda url: {
                "dialect": "kannel",
                "url": f"{url}/cgi-bin/sendsms",
                "username": "fieldpost",
                "password": Secret(PASSWORD),
            },
            targets=NUMBERS,
            many=MANY,
            refuses=HttpReaction(status=400, body=b"Garbage 'to' field, rejected."),
        ).behaving(behaviour)


class _Closing(SmsAdapter):
    """Closes the client that the test made for it."""

    async def close(self) -> None:
        await self._outbound.close()
