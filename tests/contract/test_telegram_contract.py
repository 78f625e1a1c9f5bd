"""The telegram adapter passes the suite that every adapter must pass."""

from contextlib import AbstractAsyncContextManager

import pytest

from fieldpost.central.adapters.telegram.adapter import TelegramAdapter
from fieldpost.core.delivery.adapter import Adapter
from fieldpost.core.secret import Secret
from fieldpost.testing import AdapterContract, Behaviour, World
from fieldpost.testing.providers import FakeTelegram
from fieldpost.testing.providers.telegram import telegram_error
from support.provider_worlds import ProviderWorld, provider_outbound

TOKEN = "123456:canary-AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"


@pytest.mark.req("EVT-04", "CHN-02", "CHN-05", "CHN-06", "CHN-07")
class TestTelegramContract(AdapterContract):
    good_targets = ("12345", "-1001234567890", "-1001234567890:7", "@plant_alarms", "@plant_alarms:12")
    limits_requests = True
    bad_targets = ("", "0", "12 345", "@a", "@1plant", "- 5", "１２３", "plant_alarms", "5:", "5:x", "9" * 20)
    bad_settings = (("token", "canary"), ("token", 5), ("url", "ftp://x"), ("url", "http://elsewhere.example"))

    def make(self, deadline_s: float) -> Adapter:
        return _Closing(outbound=provider_outbound(), deadline_s=deadline_s)

    def world(self, behaviour: Behaviour) -> AbstractAsyncContextManager[World]:
        return ProviderWorld(
            server=lambda tls: FakeTelegram(TOKEN, is_limited=False, tls=tls),
            settings=lambda url: {"token": Secret(TOKEN), "url": url},
            targets=("4711", "4712"),
            many=tuple(str(chat) for chat in range(1, 11)),
            refuses=telegram_error(403, "Forbidden: bot was blocked by the user"),
            too_many=telegram_error(429, "Too Many Requests: retry after 30", retry_after=30),
        ).behaving(behaviour)


class _Closing(TelegramAdapter):
    """Closes the client that the test made for it."""

    async def close(self) -> None:
        await self._outbound.close()
