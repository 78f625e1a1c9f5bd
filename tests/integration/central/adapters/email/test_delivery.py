"""Mails through the adapter to a server that behaves well."""

import asyncio
from dataclasses import replace
from email import message_from_bytes, policy

import pytest

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.core.delivery.adapter import ClaimLost
from fieldpost.core.delivery.outcome import Delivered, PermanentFailure, TransientFailure
from fieldpost.core.notification import Target, TargetStatus
from fieldpost.testing import MailServer
from fieldpost.testing.mail import Limits
from support.mailing import ID, SENDER, envelope

BODIES = {
    "ascii": "Pump 3 is hot.\n",
    "umlauts": "Pumpe 3 läuft heiß: 93 °C\n",
    "cjk": "三号泵过热。\n",
    "emoji": "🔥 pump 3 👩🏽‍🔧\n",
    "leading dots": ".\n..\n.hidden\nmid\n.\n",
    "long lines": "x" * 2000 + "\n" + "ä" * 2000 + "\n",
    "dot at the end": "last\n.",
    "longest": "Pump 3 läuft heiß\n" * 13_000,
    "longest ascii": ".a line with a leading dot\n" * 9_700,
}


@pytest.mark.req("ADP-02", "ADP-06")
async def test_one_mail_goes_to_all_targets_and_names_none_of_them(server: MailServer, adapter: EmailAdapter) -> None:
    targets = ("anna@plant.example", "bert@plant.example", "cleo@plant.example")
    outcome = await adapter.deliver(envelope(server, *targets))
    [mail] = server.mails
    assert (mail.sender, mail.recipients) == (SENDER, targets)
    assert mail.header("Content-Type") == "text/plain; charset=utf-8"
    assert not any(target.encode() in mail.raw for target in targets)
    assert outcome == Delivered(
        tuple(Target(target, TargetStatus.DELIVERED) for target in targets),
        reply=outcome.reply,
        phase="dot",
    )
    assert outcome.reply is not None
    assert outcome.reply.startswith("250 2.0.0")


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_a_body_arrives_byte_by_byte(server: MailServer, adapter: EmailAdapter, body: str) -> None:
    outcome = await adapter.deliver(envelope(server, body=body, subject="Pumpe heiß 🔥"))
    assert isinstance(outcome, Delivered)
    message = message_from_bytes(server.mails[0].raw, policy=policy.default)
    ended = body if body.endswith("\n") else body + "\n"
    assert message.get_payload(decode=True) == ended.replace("\n", "\r\n").encode()
    assert message["Subject"] == "Pumpe heiß 🔥"
    assert message["X-Fieldpost-Id"] == ID


async def test_smtp_dialogue_follows_the_standard(server: MailServer, adapter: EmailAdapter) -> None:
    await adapter.deliver(envelope(server))
    await adapter.close()
    await server.idle()
    said = server.connections[0].commands
    assert [line.split(" ")[0] for line in said] == ["EHLO", "MAIL", "RCPT", "DATA", ".", "QUIT"]
    assert "." in said[0]  # a full name or an address literal, never a bare host name


async def test_the_message_id_stays_when_the_channel_gets_another_sender(server: MailServer) -> None:
    adapter = EmailAdapter(message_id_domain="alerts.example.org")
    for sender in ("alerts@plant.example", "alerts@new-name.example"):
        await adapter.deliver(envelope(server, settings={"from_address": sender}))
    assert [mail.message_id for mail in server.mails] == [f"<{ID}@alerts.example.org>"] * 2
    await adapter.close()


@pytest.mark.bad_input(23)
async def test_five_thousand_targets_go_in_transactions_that_every_server_takes(adapter: EmailAdapter) -> None:
    targets = tuple(f"user{number}@plant.example" for number in range(5000))
    async with MailServer(limits=Limits(recipients=100)) as server:
        outcome = await adapter.deliver(envelope(server, *targets))
        assert isinstance(outcome, Delivered)
        assert {target.status for target in outcome.targets} == {TargetStatus.DELIVERED}
        assert [address for mail in server.mails for address in mail.recipients] == list(targets)
        assert len({mail.message_id for mail in server.mails}) == 1
        assert len(server.connections) == 1
        await adapter.close()


@pytest.mark.req("ADP-11")
@pytest.mark.bad_input(23)
async def test_notification_without_targets_is_permanent(server: MailServer, adapter: EmailAdapter) -> None:
    outcome = await adapter.deliver(replace(envelope(server), targets=()))
    assert isinstance(outcome, PermanentFailure)
    assert server.connections == []


async def test_a_target_given_twice_gets_one_copy(server: MailServer, adapter: EmailAdapter) -> None:
    await adapter.deliver(envelope(server, "ops@plant.example", "ops@plant.example"))
    assert server.mails[0].recipients == ("ops@plant.example",)


@pytest.mark.bad_input(20)
async def test_stored_invalid_target_fails_and_the_others_get_the_mail(
    server: MailServer, adapter: EmailAdapter
) -> None:
    evil = "a@b.c>\r\nRCPT TO:<x@y.example"
    outcome = await adapter.deliver(envelope(server, evil, "ops@plant.example"))
    assert isinstance(outcome, PermanentFailure)
    assert [target.status for target in outcome.targets] == [TargetStatus.FAILED, TargetStatus.DELIVERED]
    assert "control" in outcome.error
    assert server.mails[0].recipients == ("ops@plant.example",)
    assert not any("x@y.example" in line for line in server.connections[0].commands)


@pytest.mark.req("ADP-11")
@pytest.mark.parametrize(
    ("field", "value"),
    [("tls", "start-tls"), ("tls", None), ("host", "smtp://x"), ("port", 0), ("from_address", "a@b\r\nc")],
)
async def test_stored_settings_that_are_not_valid_are_permanent_and_nothing_is_sent(
    server: MailServer, adapter: EmailAdapter, field: str, value: object
) -> None:
    outcome = await adapter.deliver(envelope(server, settings={field: value}))
    assert isinstance(outcome, PermanentFailure)
    assert field in outcome.error
    assert outcome.phase == "settings"
    assert server.connections == []


@pytest.mark.parametrize("settings", [{"max_retries": 0}, {"a_setting_of_next_year": True}], ids=str)
async def test_settings_that_do_not_concern_an_attempt_do_not_stop_it(
    server: MailServer, adapter: EmailAdapter, settings: dict[str, object]
) -> None:
    assert isinstance(await adapter.deliver(envelope(server, settings=settings)), Delivered)


async def test_smtputf8_is_used_only_for_targets_that_need_it(server: MailServer, adapter: EmailAdapter) -> None:
    outcome = await adapter.deliver(envelope(server, "jörg@plant.example", "ops@plant.example"))
    assert isinstance(outcome, Delivered)
    assert [(mail.recipients, "SMTPUTF8" in mail.parameters) for mail in server.mails] == [
        (("ops@plant.example",), False),
        (("jörg@plant.example",), True),
    ]


@pytest.mark.fault(47)
async def test_without_smtputf8_and_8bitmime_only_targets_that_need_it_fail_and_the_text_is_intact(
    adapter: EmailAdapter,
) -> None:
    async with MailServer(extensions=["SIZE"]) as server:
        outcome = await adapter.deliver(envelope(server, "jörg@plant.example", "ops@plant.example"))
        assert isinstance(outcome, PermanentFailure)
        assert [target.status for target in outcome.targets] == [TargetStatus.FAILED, TargetStatus.DELIVERED]
        assert "SMTPUTF8" in outcome.error
        [mail] = server.mails
        assert (mail.raw.isascii(), mail.body) == (True, "It has 93 °C.\n")
        await adapter.close()


@pytest.mark.fault(47)
async def test_mail_larger_than_the_server_accepts_is_permanent_with_the_reason(adapter: EmailAdapter) -> None:
    async with MailServer(limits=Limits(message_bytes=2000)) as server:
        outcome = await adapter.deliver(envelope(server, body="x" * 3000))
        assert isinstance(outcome, PermanentFailure)
        assert "at most 2000" in outcome.error
        assert server.seen["mail"] == 0
        assert isinstance(await adapter.deliver(envelope(server, body="x" * 100)), Delivered)
        await adapter.close()


async def test_a_lost_claim_before_the_dot_sends_nothing(server: MailServer, adapter: EmailAdapter) -> None:
    seen_before_gate = []

    def gate() -> None:
        seen_before_gate.append(server.seen["data"])
        raise ClaimLost

    with pytest.raises(ClaimLost):
        await adapter.deliver(envelope(server, gate=gate))
    await server.idle()
    assert seen_before_gate == [1]
    assert (server.mail_count, server.seen["dot"]) == (0, 0)


async def test_gate_is_asked_just_before_a_long_mail_is_complete(server: MailServer, adapter: EmailAdapter) -> None:
    def gate() -> None:
        raise ClaimLost

    with pytest.raises(ClaimLost):
        await adapter.deliver(envelope(server, body=BODIES["longest"], gate=gate))
    await server.idle()
    assert (server.mail_count, server.seen["dot"]) == (0, 0)


async def test_the_gate_is_asked_before_the_dot_of_every_transaction(server: MailServer, adapter: EmailAdapter) -> None:
    asked = []
    targets = [f"user{number}@plant.example" for number in range(250)]
    await adapter.deliver(envelope(server, *targets, gate=lambda: asked.append(server.seen["dot"])))
    assert asked == [0, 1, 2]


@pytest.mark.req("ADP-10")
@pytest.mark.parametrize("verb", ["connect", "ehlo", "mail", "rcpt", "data", "dot"])
async def test_cancellation_passes_through_and_hangs_up(server: MailServer, adapter: EmailAdapter, verb: str) -> None:
    server.on(verb).hang()  # type: ignore[arg-type]
    task = asyncio.create_task(adapter.deliver(envelope(server)))
    await server.saw(verb)  # type: ignore[arg-type]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await server.idle()
    assert server.mail_count == 0


async def test_hundred_concurrent_attempts_do_not_interfere(server: MailServer, adapter: EmailAdapter) -> None:
    server.on("rcpt", address=lambda address: address.startswith("later")).reply(450, "4.2.0 later")
    targets = [f"{'later' if number % 2 else 'now'}{number}@plant.example" for number in range(100)]
    outcomes = await asyncio.gather(*(adapter.deliver(envelope(server, target)) for target in targets))
    assert [type(outcome) for outcome in outcomes] == [Delivered, TransientFailure] * 50
    assert sorted(mail.recipients[0] for mail in server.mails) == sorted(targets[::2])
