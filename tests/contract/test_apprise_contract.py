"""The Apprise adapter passes the suite that every adapter must pass, with Apprise's own JSON notifications."""

from contextlib import AbstractAsyncContextManager

import pytest

from fieldpost.central.adapters.apprise.adapter import AppriseAdapter
from fieldpost.core.delivery.adapter import Adapter, Envelope
from fieldpost.core.delivery.outcome import Outcome
from fieldpost.testing import AdapterContract, Behaviour, World
from fieldpost.testing.http.rules import HttpReaction, ReceivedRequest
from fieldpost.testing.providers import ProviderCopy, ProviderServer
from fieldpost.testing.providers.server import id_in, json_of, json_reaction
from support.provider_worlds import ProviderWorld, provider_outbound

TOKEN = "canary-of-apprise-48f1"


class FakeJsonReceiver(ProviderServer):
    """Accepts JSON notifications; the target is the last part of the path."""

    def answer(self, request: ReceivedRequest) -> HttpReaction | tuple[ProviderCopy, HttpReaction]:
        said = json_of(request) or {}
        message = str(said.get("message"))
        copy = ProviderCopy(request.path.split("/")[-1], id_in(message), f"{said.get('title')}\n{message}", said)
        return copy, json_reaction(200, {"status": "ok"})


class StartedApprise(AppriseAdapter):
    """Starts a child process before the deadline of an attempt begins, and closes the test's client."""

    async def deliver(self, envelope: Envelope) -> Outcome:
        await self.start()
        return await super().deliver(envelope)

    async def close(self) -> None:
        await super().close()
        await self._outbound.close()


@pytest.mark.needs("apprise")
@pytest.mark.req("CHN-02", "CHN-05", "CHN-07", "CHN-13")
class TestAppriseContract(AdapterContract):
    good_targets = ("night shift", "Gotify of plant 7")
    limits_requests = True
    bad_targets = ("", " padded ", "json://host/token", "line\nbreak", "\u202ereversed")
    bad_settings = (("url", "json://example.org"),)

    def make(self, deadline_s: float) -> Adapter:
        return StartedApprise(outbound=provider_outbound(), deadline_s=deadline_s, children=2)

    def world(self, behaviour: Behaviour) -> AbstractAsyncContextManager[World]:
        return ProviderWorld(
            server=lambda tls: FakeJsonReceiver(tls=tls),
            settings=lambda url: {},
            targets=("night", "day"),
            many=tuple(f"target-{number}" for number in range(10)),
            secret_of=lambda url, target: f"jsons://{url.removeprefix('https://')}/{TOKEN}/{target}?verify=no",
        ).behaving(behaviour)
