"""Chats and text messages in the demo's inbox, as the real adapters send them to the demo's providers."""

import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from fieldpost.central.adapters.provider import ProviderAdapter
from fieldpost.central.adapters.slack.adapter import SlackAdapter
from fieldpost.central.adapters.sms.adapter import SmsAdapter
from fieldpost.central.adapters.teams.adapter import TeamsAdapter
from fieldpost.central.adapters.telegram.adapter import TelegramAdapter
from fieldpost.clock import SystemClock
from fieldpost.core.delivery.outcome import Delivered, Held, Outcome, TransientFailure
from fieldpost.core.ids import is_id
from fieldpost.core.secret import Secret
from fieldpost.demo.catcher import Catcher
from fieldpost.demo.chats import ChatKind
from fieldpost.demo.inbox import Inbox
from fieldpost.demo.mail_store import MailStore
from fieldpost.demo.providers import ChatSetup, Providers
from fieldpost.demo.scenario import CHAT_LISTS, SLACK_FAILURES
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.outbound import Outbound
from support.mailing import envelope

ADAPTERS: dict[ChatKind, type[ProviderAdapter]] = {
    ChatKind.TEAMS: TeamsAdapter,
    ChatKind.SLACK: SlackAdapter,
    ChatKind.TELEGRAM: TelegramAdapter,
    ChatKind.SMS: SmsAdapter,
}


@pytest.fixture
async def outcomes(tmp_path: Path) -> AsyncIterator[tuple[dict[ChatKind, list[Outcome]], MailStore]]:
    """The outcomes of a notification to each provider, attempted until it is delivered."""
    found: dict[ChatKind, list[Outcome]] = {kind: [] for kind in ChatKind}
    with MailStore(tmp_path / "mails.jsonl") as store:
        providers = Providers(tmp_path, SystemClock(), 1, Catcher(store).take_chat)
        async with providers.listening() as setups:
            trust = ssl.create_default_context(cafile=str(providers.certificate))
            outbound = Outbound(OutboundOptions(allow="127.0.0.1"), tls_context=trust)
            for kind, adapter in ADAPTERS.items():
                while not found[kind] or not isinstance(found[kind][-1], Delivered):
                    found[kind].append(await send(adapter(outbound=outbound), kind, setups[kind]))
                    assert len(found[kind]) < 5, found
            await outbound.close()
        yield found, store


async def send(adapter: ProviderAdapter, kind: ChatKind, setup: ChatSetup) -> Outcome:
    target = CHAT_LISTS[kind].target
    settings = setup.settings | {name: Secret(text) for name, text in setup.channel_secrets.items()}
    secrets = {target: Secret(setup.target_secret)} if setup.target_secret else {}
    letter = replace(envelope(None, target), settings=settings, target_secrets=secrets)
    return await adapter.deliver(replace(letter, subject="Pump <3>", body="Dry & hot."))


@pytest.mark.req("CHN-02", "CHN-06")
async def test_every_provider_takes_a_message_and_the_inbox_shows_it_as_it_was_written(
    outcomes: tuple[dict[ChatKind, list[Outcome]], MailStore], tmp_path: Path
) -> None:
    found, store = outcomes
    kinds = {kind: [type(one) for one in attempts] for kind, attempts in found.items()}
    assert kinds == {
        ChatKind.TEAMS: [Delivered],
        ChatKind.SLACK: [TransientFailure] * SLACK_FAILURES + [Delivered],
        ChatKind.TELEGRAM: [Held, Delivered],
        ChatKind.SMS: [Delivered],
    }
    with MailStore(tmp_path / "mails.jsonl") as again:
        assert list(again.mails) == list(store.mails), "a restart keeps them"
    async with Inbox(store).listening() as url, aiohttp.ClientSession(url) as browser:
        for number, kind in enumerate(ChatKind, 1):
            async with browser.get(f"/mails/{number}") as response:
                page = await response.text()
            assert '<p class="title">Pump &lt;3&gt;</p>' in page, kind
            assert '<p class="body">Dry &amp; hot.</p>' in page, kind
            assert CHAT_LISTS[kind].target in page
        async with browser.get("/mails.json?address=telegram") as response:
            listed = (await response.json())["mails"]
    assert [(one["kind"], one["subject"]) for one in listed] == [("telegram", "Pump <3>")]
    assert is_id(listed[0]["x_fieldpost_id"])
