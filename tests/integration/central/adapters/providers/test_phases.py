"""The phases of a test: behind a proxy, reaching it is one, and resolving names is not."""

import pytest

from fieldpost.central.adapters.provider import ProviderAdapter
from fieldpost.central.adapters.slack.adapter import SlackAdapter
from fieldpost.central.adapters.telegram.adapter import TelegramAdapter
from fieldpost.central.adapters.webhook.adapter import WebhookAdapter
from fieldpost.central.operate.trial import trial_steps
from fieldpost.core.delivery.outcome import Delivered, Held
from fieldpost.core.secret import Secret
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.outbound import Outbound
from fieldpost.testing import World
from fieldpost.testing.world import envelope
from support.ports import free_port

HOOK = "https://hooks.example/services/T0/B0/canary-7c1-0123456789"


def titles(adapter: ProviderAdapter | WebhookAdapter) -> list[str]:
    return [step.title for step in trial_steps(adapter.phases, {}, Delivered())]


@pytest.mark.dec("DEC-64")
async def test_unreachable_proxy_is_the_failed_phase() -> None:
    behind = Outbound(OutboundOptions(proxy=f"http://127.0.0.1:{free_port()}"))
    adapter = SlackAdapter(outbound=behind)
    outcome = await adapter.deliver(envelope(World({}, ("a",), list, target_secrets={"a": Secret(HOOK)})))
    assert isinstance(outcome, Held)
    failed = [step for step in trial_steps(adapter.phases, {}, outcome) if step.state == "failed"]
    assert [(step.title, step.advice) for step in failed] == [
        ("Reach the proxy", "Check `[outbound] proxy`, its user and its password file.")
    ]
    for kind in (SlackAdapter, TelegramAdapter, WebhookAdapter):
        assert "Reach the proxy" in titles(kind(outbound=behind))
        assert "Resolve the host name" not in titles(kind(outbound=behind))
    await behind.close()


@pytest.mark.parametrize("kind", [SlackAdapter, TelegramAdapter, WebhookAdapter])
async def test_without_a_proxy_the_phase_is_missing(kind: type[ProviderAdapter | WebhookAdapter]) -> None:
    adapter = kind()
    assert "Reach the proxy" not in titles(adapter)
    assert "Resolve the host name" in titles(adapter)
    await adapter.close()
