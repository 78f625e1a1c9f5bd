"""Limits and faults of a server are learned from its replies, and later mails are sent as it can take them."""

import asyncio
from collections.abc import Iterator

import pytest

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.central.adapters.email.server_memory import LEARNED_S
from fieldpost.core.delivery.outcome import Delivered, Held, Outcome, TransientFailure
from fieldpost.core.notification import Status, TargetStatus
from fieldpost.testing import MailServer, ManualClock
from support.mailing import after, due, envelope, notification
from support.postfix import Postfix, need_postfix

TARGETS = tuple(f"user{number:02}@plant.example" for number in range(60))
TOO_MANY = [(452, "4.5.3 too many recipients"), (550, "5.5.3 too many recipients"), (452, "too many")]


def recipients(server: MailServer) -> list[int]:
    return [len(mail.recipients) for mail in server.mails]


# -- recipients per transaction ----------------------------------------------------------------------------------------


@pytest.mark.fault(39)
@pytest.mark.parametrize("reply", TOO_MANY, ids=str)
async def test_a_server_that_hangs_up_past_its_limit_gets_smaller_transactions_in_the_same_attempt(
    server: MailServer, adapter: EmailAdapter, reply: tuple[int, str]
) -> None:
    server.on("rcpt").after(20, per="transaction").unavailable("4.7.0 too many errors")
    server.on("rcpt").after(7, per="transaction").reply(*reply)
    outcome = await adapter.deliver(envelope(server, *TARGETS))
    assert isinstance(outcome, Delivered)
    assert recipients(server) == [7] * 8 + [4]
    assert [address for mail in server.mails for address in mail.recipients] == list(TARGETS)
    assert len(server.connections) <= 2
    rcpt_count = server.seen["rcpt"]
    assert isinstance(await adapter.deliver(envelope(server, *TARGETS)), Delivered)
    assert server.seen["rcpt"] == rcpt_count + 60, "the limit is remembered"


@pytest.mark.fault(39)
async def test_a_server_that_only_hangs_up_gets_smaller_transactions_from_the_next_attempt(
    server: MailServer, adapter: EmailAdapter
) -> None:
    server.on("rcpt").after(7, per="transaction").unavailable()
    first = await adapter.deliver(envelope(server, *TARGETS))
    assert isinstance(first, TransientFailure)
    n = after(notification(*TARGETS), first)
    assert due(n) == TARGETS
    assert isinstance(await adapter.deliver(envelope(server, *TARGETS)), Delivered)
    assert recipients(server) == [7] * 8 + [4]


async def test_one_rejected_recipient_among_accepted_ones_is_not_a_limit(adapter: EmailAdapter) -> None:
    async with MailServer() as server:
        server.on("rcpt", address=TARGETS[3]).reply(452, "4.5.3 too many").times(1)
        assert isinstance(await adapter.deliver(envelope(server, *TARGETS)), Delivered)
        assert isinstance(await adapter.deliver(envelope(server, *TARGETS)), Delivered)
        assert recipients(server) == [59, 1, 60]
        await adapter.close()


async def test_a_learned_limit_is_shown_and_tried_again_after_an_hour() -> None:
    clock = ManualClock()
    adapter = EmailAdapter(clock=clock)
    async with MailServer() as server:
        mail = envelope(server, *TARGETS)
        rule = server.on("rcpt").after(7, per="transaction").reply(*TOO_MANY[0])
        await adapter.deliver(mail)
        assert adapter.warnings(mail.settings) == [
            "the server seems to accept at most 7 recipient(s) per message, so this node sends a notification to more"
            " of them in several messages"
        ]
        rule.withdraw()
        clock.advance(LEARNED_S)
        await adapter.deliver(mail)
        assert recipients(server)[-1] == 60
        assert adapter.warnings(mail.settings) == []
        await adapter.close()


# -- PIPELINING --------------------------------------------------------------------------------------------------------


async def test_a_server_that_drops_pipelined_commands_gets_them_one_at_a_time(adapter: EmailAdapter) -> None:
    async with MailServer(drops_pipelined=True) as server:
        mail = envelope(server, *TARGETS[:3], settings={"command_timeout_s": 1.5})
        assert isinstance(await adapter.deliver(mail), Delivered)
        assert len(server.connections) == 2
        [warning] = adapter.warnings(mail.settings)
        assert "one command at a time" in warning
        for _ in range(2):
            assert isinstance(await adapter.deliver(mail), Delivered)
        assert (server.mail_count, len(server.connections)) == (3, 2), "it is remembered"
        await adapter.close()


async def test_a_server_that_hangs_is_not_taken_for_one_that_drops_commands(adapter: EmailAdapter) -> None:
    async with MailServer() as server:
        mail = envelope(server, settings={"command_timeout_s": 1.5})
        await adapter.deliver(mail)
        server.on("rcpt").hang()
        outcome = await adapter.deliver(mail)
        assert isinstance(outcome, TransientFailure)
        assert outcome.phase == "rcpt"
        assert adapter.warnings(mail.settings) == []
        await adapter.close()


async def test_with_pipelining_off_each_command_waits_for_its_reply(adapter: EmailAdapter) -> None:
    async with MailServer() as server:
        await adapter.deliver(envelope(server, *TARGETS[:2], settings={"pipelining": "off"}))
        speakers = "".join("C" if line.speaker == "client" else "S" for line in server.connections[0].transcript)
        assert speakers == "S" + "CS" * 6
        await adapter.close()


# -- HELO --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [500, 502, 550, 554])
async def test_a_server_that_does_not_know_ehlo_is_greeted_with_helo(
    server: MailServer, adapter: EmailAdapter, code: int
) -> None:
    server.on("ehlo").reply(code, "5.5.1 unknown command")
    assert isinstance(await adapter.deliver(envelope(server)), Delivered)
    assert [line.split(" ")[0] for line in server.connections[0].commands[:3]] == ["EHLO", "HELO", "MAIL"]


@pytest.mark.parametrize(
    "settings", [{"tls": "starttls"}, {"auth": "basic", "username": "u", "password": "p"}], ids=["tls", "auth"]
)
async def test_helo_does_not_bypass_tls_or_login(
    server: MailServer, adapter: EmailAdapter, settings: dict[str, object]
) -> None:
    server.on("ehlo").reply(502, "5.5.1 unknown command")
    outcome = await adapter.deliver(envelope(server, settings=settings))
    assert isinstance(outcome, Held)
    assert outcome.reply == "502 5.5.1 unknown command"
    assert server.seen["helo"] == 0


# -- Postfix -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def postfix() -> Iterator[Postfix]:
    need_postfix()
    with Postfix(
        "smtpd_recipient_limit = 7",
        "smtpd_recipient_overshoot_limit = 3",
        "smtpd_error_sleep_time = 0",
    ) as postfix:
        yield postfix


@pytest.mark.fault(39)
async def test_more_recipients_than_postfix_accepts_are_all_reached(postfix: Postfix, adapter: EmailAdapter) -> None:
    settings = {"port": postfix.port}
    outcome: Outcome
    n, attempts = notification(*TARGETS), 0
    while n.status in (Status.PENDING, Status.RETRYING):
        outcome = await adapter.deliver(envelope(None, *due(n), settings=settings))
        n, attempts = after(n, outcome), attempts + 1
    assert (n.status, attempts) == (Status.DELIVERED, 1)
    assert {target.status for target in n.targets} == {TargetStatus.DELIVERED}
    assert len(await asyncio.to_thread(postfix.received, 60)) == 60
