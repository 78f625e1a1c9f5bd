"""What the adapter makes of a mail server that misbehaves, and what central then makes of the notification."""

import asyncio
import socket
from dataclasses import replace

import pytest

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.core.delivery.outcome import Delivered, Held, PermanentFailure, TransientFailure, Uncertain
from fieldpost.core.notification import Status, TargetStatus
from fieldpost.testing import MailServer, ManualClock
from fieldpost.testing.mail import MailEvent, SmtpVerb, Tap
from support.mailing import after, due, envelope, notification

BEFORE_MAIL: list[SmtpVerb] = ["connect", "ehlo"]
BEFORE_DOT: list[SmtpVerb] = ["mail", "rcpt", "data"]

HANG_S = 1.5
"""How long is waited where nobody answers: longer than a busy machine takes for an answer that does come."""

A, B, C = "anna@plant.example", "bert@plant.example", "cleo@plant.example"


@pytest.mark.fault(35)
@pytest.mark.parametrize("verb", BEFORE_MAIL)
async def test_421_before_mail_holds_and_keeps_the_status(
    server: MailServer, adapter: EmailAdapter, verb: SmtpVerb
) -> None:
    server.on(verb).unavailable()
    outcome = await adapter.deliver(envelope(server))
    assert isinstance(outcome, Held)
    text = "no SMTP greeting" if verb == "connect" else "4.3.2 Service not available"
    assert (outcome.phase, outcome.reply) == (verb, f"421 {text}")
    held = after(notification(), outcome)
    assert (held.status, held.retry_count, held.held_by) == (Status.PENDING, 0, "channel:mail")


@pytest.mark.fault(35)
@pytest.mark.parametrize("verb", [*BEFORE_DOT, "dot"])
async def test_421_from_mail_on_is_retried_and_never_parks(
    server: MailServer, adapter: EmailAdapter, verb: SmtpVerb
) -> None:
    server.on(verb).unavailable()
    outcome = await adapter.deliver(envelope(server))
    assert isinstance(outcome, TransientFailure)
    assert (outcome.phase, outcome.reply) == (verb, "421 4.3.2 Service not available")
    assert after(notification(), outcome).status is Status.RETRYING
    assert server.mail_count == 0


@pytest.mark.fault(36)
@pytest.mark.parametrize("code", [450, 554])
@pytest.mark.parametrize("verb", BEFORE_MAIL)
async def test_any_rejection_before_mail_holds(
    server: MailServer, adapter: EmailAdapter, verb: SmtpVerb, code: int
) -> None:
    server.on(verb).reply(code, "go away")
    server.on("helo").reply(code, "go away")
    outcome = await adapter.deliver(envelope(server))
    text = "no SMTP greeting" if verb == "connect" else "go away"
    assert outcome == Held(f"mail server at {verb}: {code} {text}", f"{code} {text}", verb)


@pytest.mark.bad_input(30)
@pytest.mark.threat(16)
@pytest.mark.parametrize(
    "banner",
    [
        b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n",
        b"-ERR wrong number of arguments for 'internal'\r\n",
        b"HTTP/1.1 400 Bad Request\r\nServer: internal\r\n\r\n",
        b"554 internal service 10.0.0.7\r\n",
        b"200 internal\r\n",
        b"J\x00\x00\x00\x0a8.0.36-internal\x00",
    ],
)
async def test_banner_of_another_service_is_not_shown(adapter: EmailAdapter, banner: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(banner)
        await writer.drain()
        writer.close()

    lines: list[str] = []
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as service, MailServer() as server:
        asked = envelope(server)
        settings = {**asked.settings, "port": service.sockets[0].getsockname()[1]}
        outcome = await adapter.deliver(replace(asked, settings=settings, transcript=lines.append))
    assert isinstance(outcome, Held)
    shown = " ".join([*lines, outcome.error or "", outcome.reply or ""])
    assert "no SMTP greeting" in shown or "closed the connection" in shown
    for word in ("internal", "OpenSSH", "ERR", "Bad Request"):
        assert word not in shown


@pytest.mark.req("ADP-08")
@pytest.mark.fault(36)
@pytest.mark.parametrize("verb", [*BEFORE_DOT, "dot"])
async def test_5xx_from_mail_on_is_permanent(server: MailServer, adapter: EmailAdapter, verb: SmtpVerb) -> None:
    server.on(verb).reply(554, "5.6.0 never")
    outcome = await adapter.deliver(envelope(server, A, B))
    assert isinstance(outcome, PermanentFailure)
    assert (outcome.phase, outcome.reply) == (verb, "554 5.6.0 never")
    assert {target.status for target in outcome.targets} == {TargetStatus.FAILED}
    assert {target.error for target in outcome.targets} == {"554 5.6.0 never"}
    assert after(notification(A, B), outcome).status is Status.PARKED


@pytest.mark.fault(36)
@pytest.mark.parametrize("verb", [*BEFORE_DOT, "dot"])
async def test_4xx_from_mail_on_is_transient(server: MailServer, adapter: EmailAdapter, verb: SmtpVerb) -> None:
    server.on(verb).reply(451, "4.3.0 later")
    outcome = await adapter.deliver(envelope(server, A, B))
    assert isinstance(outcome, TransientFailure)
    assert (outcome.phase, outcome.reply) == (verb, "451 4.3.0 later")
    assert due(after(notification(A, B), outcome)) == (A, B)


@pytest.mark.parametrize("reply", ["530 5.7.0 log in", "535 5.7.8 who", "550 5.7.1 not this sender"])
async def test_mail_rejected_for_the_account_of_the_channel_holds(
    server: MailServer, adapter: EmailAdapter, reply: str
) -> None:
    server.on("mail").reply(int(reply[:3]), reply[4:])
    outcome = await adapter.deliver(envelope(server, *(f"user{number}@plant.example" for number in range(150))))
    assert outcome == Held(f"mail server at mail: {reply}", reply, "mail")
    assert server.seen["mail"] == 1


@pytest.mark.req("ADP-09")
@pytest.mark.fault(37)
@pytest.mark.parametrize("how", ["close", "reset", "hang", "nonsense"])
@pytest.mark.parametrize("verb", [*BEFORE_MAIL, *BEFORE_DOT])
async def test_silence_before_the_dot_is_never_uncertain(
    server: MailServer, adapter: EmailAdapter, verb: SmtpVerb, how: str
) -> None:
    misbehave(server, verb, how)
    outcome = await adapter.deliver(
        envelope(server, A, B, settings={"command_timeout_s": HANG_S if how == "hang" else 30})
    )
    assert isinstance(outcome, Held if verb in BEFORE_MAIL else TransientFailure)
    assert outcome.phase == verb
    assert server.mail_count == 0
    assert due(after(notification(A, B), outcome)) == (A, B)
    await server.idle()


@pytest.mark.fault(37)
@pytest.mark.parametrize("how", ["close", "reset", "hang", "nonsense"])
async def test_silence_after_the_dot_is_uncertain_and_the_copy_can_be_recognised(
    server: MailServer, adapter: EmailAdapter, how: str
) -> None:
    misbehave(server, "dot", how, keeps_mail=True)
    outcome = await adapter.deliver(
        envelope(server, A, B, settings={"data_timeout_s": HANG_S if how == "hang" else 30})
    )
    assert isinstance(outcome, Uncertain)
    assert outcome.phase == "dot"
    retrying = after(notification(A, B), outcome)
    assert (retrying.status, due(retrying)) == (Status.RETRYING, (A, B))
    server.behave()
    assert isinstance(await adapter.deliver(envelope(server, *due(retrying))), Delivered)
    first, second = server.mails
    assert first.raw == second.raw
    assert first.message_id is not None


@pytest.mark.fault(38)
async def test_three_recipients_are_judged_by_their_own_answers(server: MailServer, adapter: EmailAdapter) -> None:
    server.on("rcpt", address=B).reply(450, "4.2.1 busy").times(1)
    server.on("rcpt", address=C).reply(550, "5.1.1 no such user")
    outcome = await adapter.deliver(envelope(server, A, B, C))
    assert isinstance(outcome, TransientFailure)
    assert [(target.status.value, target.error) for target in outcome.targets] == [
        ("delivered", None),
        ("due", "450 4.2.1 busy"),
        ("failed", "550 5.1.1 no such user"),
    ]
    first = after(notification(A, B, C), outcome)
    assert (first.status, due(first)) == (Status.RETRYING, (B,))
    second = after(first, await adapter.deliver(envelope(server, *due(first))))
    assert second.status is Status.PARKED
    assert second.last_error == f"{C}: 550 5.1.1 no such user"
    assert [mail.recipients for mail in server.mails] == [(A,), (B,)]
    assert len({mail.message_id for mail in server.mails}) == 1


@pytest.mark.fault(39)
async def test_recipients_beyond_what_the_server_takes_go_in_further_transactions(
    server: MailServer, adapter: EmailAdapter
) -> None:
    server.on("rcpt").after(50, per="transaction").reply(452, "4.5.3 too many recipients")
    targets = tuple(f"user{number}@plant.example" for number in range(120))
    outcome = await adapter.deliver(envelope(server, *targets))
    assert isinstance(outcome, Delivered)
    assert [len(mail.recipients) for mail in server.mails] == [50, 50, 20]
    assert [address for mail in server.mails for address in mail.recipients] == list(targets)
    assert len(server.connections) == 1


async def test_server_that_accepts_no_recipient_is_retried_later(server: MailServer, adapter: EmailAdapter) -> None:
    server.on("rcpt").reply(452, "4.5.3 too many recipients")
    outcome = await adapter.deliver(envelope(server, A, B))
    assert isinstance(outcome, TransientFailure)
    assert server.seen["mail"] == 1
    assert server.seen["dot"] == 0


@pytest.mark.fault(40)
async def test_rejected_message_reaches_no_accepted_recipient(server: MailServer, adapter: EmailAdapter) -> None:
    server.on("dot").reply(554, "5.7.1 looks like spam")
    outcome = await adapter.deliver(envelope(server, A, B, C))
    assert isinstance(outcome, PermanentFailure)
    assert [target.status for target in outcome.targets] == [TargetStatus.FAILED] * 3
    parked = after(notification(A, B, C), outcome)
    assert parked.status is Status.PARKED
    assert "554 5.7.1 looks like spam" in (parked.last_error or "")


async def test_421_between_recipients_leaves_all_but_the_rejected_ones_due(
    server: MailServer, adapter: EmailAdapter
) -> None:
    server.on("rcpt", address=B).reply(550, "5.1.1 no such user")
    server.on("rcpt", address=C).unavailable()
    last = "dora@plant.example"
    outcome = await adapter.deliver(envelope(server, A, B, C, last))
    assert isinstance(outcome, TransientFailure)
    said = "421 4.3.2 Service not available"
    assert [(target.status.value, target.error) for target in outcome.targets] == [
        ("due", said),
        ("failed", "550 5.1.1 no such user"),
        ("due", said),
        ("due", said),
    ]
    assert server.seen["dot"] == 0


@pytest.mark.parametrize("verb", [*BEFORE_DOT, "dot"])
@pytest.mark.parametrize("how", ["close", "530"])
async def test_failure_of_a_later_transaction_keeps_the_reached_targets(
    server: MailServer, adapter: EmailAdapter, verb: SmtpVerb, how: str
) -> None:
    targets = [f"user{number}@plant.example" for number in range(150)]
    rule = server.on(verb).after(1 if verb != "rcpt" else 100)
    rule.close() if how == "close" else rule.reply(530, "5.7.0 log in")
    outcome = await adapter.deliver(envelope(server, *targets))
    statuses = [target.status for target in outcome.targets]
    assert statuses[:100] == [TargetStatus.DELIVERED] * 100
    assert TargetStatus.DELIVERED not in statuses[100:]
    match how, verb:
        case "close", "dot":
            assert isinstance(outcome, Uncertain)
        case "close", _:
            assert isinstance(outcome, TransientFailure)
        case _, "dot":
            assert isinstance(outcome, PermanentFailure)
        case _:
            assert isinstance(outcome, Held)


@pytest.mark.req("DEC-73")
async def test_a_server_that_hangs_up_after_each_message_gets_all_of_them(
    server: MailServer, adapter: EmailAdapter
) -> None:
    server.on("mail").after(1, per="connection").unavailable()
    targets = tuple(f"user{number}@plant.example" for number in range(1200))
    n = notification(*targets)
    attempts = 0
    while n.status in (Status.PENDING, Status.RETRYING):
        n = after(n, await adapter.deliver(envelope(server, *due(n))))
        attempts += 1
    assert (n.status, n.retry_count, attempts) == (Status.DELIVERED, 0, 12)
    assert sorted(address for mail in server.mails for address in mail.recipients) == sorted(targets)


@pytest.mark.parametrize("refusal", ["rcpt", "data"])
async def test_failed_transaction_is_reset_before_the_next(
    server: MailServer, adapter: EmailAdapter, refusal: SmtpVerb
) -> None:
    targets = [f"user{number}@plant.example" for number in range(150)]
    server.on(refusal).reply(450, "4.2.0 later").times(100 if refusal == "rcpt" else 1)
    outcome = await adapter.deliver(envelope(server, *targets))
    assert isinstance(outcome, TransientFailure)
    assert [len(mail.recipients) for mail in server.mails] == [50]
    assert due(after(notification(*targets), outcome)) == tuple(targets[:100])
    assert server.seen["rset"] == 1


@pytest.mark.fault(63)
@pytest.mark.parametrize("how", ["close", "reset", "hang", "nonsense", "refuse"])
async def test_mail_is_delivered_after_any_failure_at_quit(server: MailServer, adapter: EmailAdapter, how: str) -> None:
    misbehave(server, "quit", how)
    outcome = await adapter.deliver(envelope(server, settings={"command_timeout_s": HANG_S if how == "hang" else 30}))
    assert isinstance(outcome, Delivered)
    assert after(notification(), outcome).status is Status.DELIVERED
    await adapter.close()
    await server.idle()
    assert (server.mail_count, server.seen["quit"]) == (1, 1)


async def test_a_connection_reset_right_after_the_250_changes_nothing(
    server: MailServer, adapter: EmailAdapter
) -> None:
    server.on("dot").then_close()
    assert isinstance(await adapter.deliver(envelope(server)), Delivered)


async def test_unreachable_server_holds(adapter: EmailAdapter) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets it, and nobody answers
        outcome = await adapter.deliver(envelope(None, settings={"port": taken.getsockname()[1]}))
    assert isinstance(outcome, Held)
    assert outcome.phase == "connect"
    assert "127.0.0.1 port" in outcome.error


@pytest.mark.parametrize("verb", ["connect", "mail", "dot"])
async def test_dripping_reply_ends_at_the_deadline_of_the_attempt(server: MailServer, verb: SmtpVerb) -> None:
    tap = Tap()
    tap.drop(5)
    server.on(verb).drip(tap)
    adapter = EmailAdapter(deadline_s=2)
    patient = {"command_timeout_s": 600, "data_timeout_s": 600}
    async with asyncio.timeout(30):
        outcome = await adapter.deliver(envelope(server, settings=patient))
    assert outcome.phase == verb
    assert isinstance(outcome, {"connect": Held, "mail": TransientFailure, "dot": Uncertain}[verb])
    await adapter.close()


async def test_dot_is_not_sent_after_the_deadline(server: MailServer) -> None:
    clock = ManualClock()
    adapter = EmailAdapter(clock=clock)

    def pass_time(_: MailEvent) -> bool:
        clock.advance(adapter.deadline_s)
        return True

    server.on("data", when=pass_time).accept()
    outcome = await adapter.deliver(envelope(server))
    assert isinstance(outcome, TransientFailure)
    assert outcome.phase == "data"
    await server.idle()
    assert (server.seen["data"], server.seen["dot"]) == (1, 0)


async def test_server_that_stops_reading_during_a_long_mail_gets_no_dot() -> None:
    asked_gate = []

    async def stop_reading(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 ready\r\n")
        for answer in (b"250 ok\r\n", b"250 ok\r\n", b"250 ok\r\n", b"354 go on\r\n"):
            await reader.readline()
            writer.write(answer)
        await writer.wait_closed()

    adapter = EmailAdapter(deadline_s=3)
    async with await asyncio.start_server(stop_reading, "127.0.0.1", 0, limit=1024) as listener:
        settings = {"port": listener.sockets[0].getsockname()[1]}
        # More than the buffers of both ends hold.
        long = envelope(None, settings=settings, body=("x" * 79 + "\n") * 150_000, gate=lambda: asked_gate.append(True))
        outcome = await adapter.deliver(long)
    assert isinstance(outcome, TransientFailure)
    assert outcome.phase == "data"
    assert "accepted no more data" in outcome.error
    assert asked_gate == []


async def test_a_long_reply_of_many_lines_is_kept_as_one_bounded_line(
    server: MailServer, adapter: EmailAdapter
) -> None:
    server.on("rcpt").reply(550, "\n".join(["5.7.1 Our policy, in many words"] * 100))
    outcome = await adapter.deliver(envelope(server))
    assert isinstance(outcome, PermanentFailure)
    assert outcome.reply is not None
    assert outcome.reply.startswith("550 5.7.1 Our policy, in many words 5.7.1")
    assert len(outcome.reply.encode()) <= 500
    assert "\n" not in outcome.error


def misbehave(server: MailServer, verb: SmtpVerb, how: str, *, keeps_mail: bool = False) -> None:
    rule = server.on(verb)
    if keeps_mail:
        rule.keep_mail()
    match how:
        case "close":
            rule.close()
        case "reset":
            rule.reset()
        case "hang":
            rule.hang()
        case "nonsense":
            rule.raw(b"* OK IMAP4 ready\r\n")
        case "refuse":
            rule.reply(500, "5.5.2 what")
