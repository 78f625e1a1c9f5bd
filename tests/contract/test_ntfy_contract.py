"""The ntfy adapter passes the suite that every adapter must pass."""

from contextlib import AbstractAsyncContextManager

import pytest

from fieldpost.central.adapters.ntfy.adapter import NtfyAdapter
from fieldpost.core.delivery.adapter import Adapter
from fieldpost.core.secret import Secret
from fieldpost.testing import AdapterContract, Behaviour, World
from fieldpost.testing.providers import FakeNtfy
from fieldpost.testing.providers.ntfy import ntfy_error
from support.provider_worlds import ProviderWorld, provider_outbound

TOKEN = "tk_canary_48f1"


@pytest.mark.req("CHN-02", "CHN-05", "CHN-06", "CHN-07")
class TestNtfyContract(AdapterContract):
    good_targets = ("plant-7-alarms", "A_b-9")
    limits_requests = True
    bad_targets = ("", "with space", "a/b", "x" * 65, "ä")
    bad_settings = (("url", "ftp://x"), ("url", "http://elsewhere.example"), ("token", "in clear"), ("token", 5))

    def make(self, deadline_s: float) -> Adapter:
        return _Closing(outbound=provider_outbound(), deadline_s=deadline_s)

    def world(self, behaviour: Behaviour) -> AbstractAsyncContextManager[World]:
        return ProviderWorld(
            server=lambda tls: FakeNtfy(TOKEN, is_limited=False, tls=tls),
            settings=lambda url: {"token": Secret(TOKEN), "url": url},
            targets=("night-shift", "day-shift"),
            many=tuple(f"topic-{number}" for number in range(10)),
            refuses=ntfy_error(413, 41301, "attachment too large"),
            too_many=ntfy_error(429, 42901, "limit reached: too many requests"),
        ).behaving(behaviour)


class _Closing(NtfyAdapter):
    """Closes the client that the test made for it."""

    async def close(self) -> None:
        await self._outbound.close()
