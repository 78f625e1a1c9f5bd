"""Each way in which the mail server can be told to misbehave."""

import asyncio
from collections.abc import AsyncIterator

import aiosmtplib
import pytest

from fieldpost.testing import MailServer, ManualClock
from fieldpost.testing.mail import Limits, SmtpVerb, Tap
from support.smtp import Talk, talk_to

MESSAGE = b"Subject: Pump 3\r\nMessage-ID: <1@plant>\r\n\r\nhot\r\n"
STEPS: list[tuple[SmtpVerb, bytes]] = [
    ("ehlo", b"EHLO c\r\n"),
    ("mail", b"MAIL FROM:<a@x.example>\r\n"),
    ("rcpt", b"RCPT TO:<b@x.example>\r\n"),
    ("data", b"DATA\r\n"),
    ("dot", MESSAGE + b".\r\n"),
    ("quit", b"QUIT\r\n"),
]
VERBS: list[SmtpVerb] = ["connect", *(verb for verb, _ in STEPS)]


@pytest.fixture
async def server() -> AsyncIterator[MailServer]:
    async with MailServer() as server:
        yield server


@pytest.fixture
async def talk(server: MailServer) -> AsyncIterator[Talk]:
    async with talk_to(server.host, server.port) as talk:
        yield talk


def client(server: MailServer) -> aiosmtplib.SMTP:
    return aiosmtplib.SMTP(hostname=server.host, port=server.port, start_tls=False, timeout=10)


async def up_to(talk: Talk, verb: SmtpVerb) -> None:
    """Go through a mail until this verb has been said; its answer is still to come."""
    if verb == "connect":
        return
    await talk.reply()
    for step, said in STEPS:
        talk.send(said)
        if step == verb:
            return
        assert (await talk.reply())[0] in "23"


@pytest.mark.parametrize("verb", VERBS)
async def test_any_verb_can_be_answered_by_any_code(server: MailServer, verb: SmtpVerb) -> None:
    rule = server.on(verb).reply(451, "4.2.1 busy")
    async with talk_to(server.host, server.port) as talk:
        await up_to(talk, verb)
        assert await talk.reply() == "451 4.2.1 busy"
    assert (rule.hits, server.mail_count) == (1, int(verb == "quit"))


@pytest.mark.parametrize("verb", VERBS)
async def test_at_any_verb_the_server_can_close_without_an_answer(server: MailServer, verb: SmtpVerb) -> None:
    server.on(verb).close()
    async with talk_to(server.host, server.port) as talk:
        await up_to(talk, verb)
        assert await talk.reader.read() == b""
    assert server.mail_count == int(verb == "quit")


@pytest.mark.parametrize("verb", VERBS)
async def test_at_any_verb_the_server_can_reset(server: MailServer, verb: SmtpVerb) -> None:
    server.on(verb).reset()
    async with talk_to(server.host, server.port) as talk:
        await up_to(talk, verb)
        with pytest.raises(ConnectionResetError):
            await talk.reader.read()
    assert server.mail_count == int(verb == "quit")


@pytest.mark.parametrize("verb", VERBS)
async def test_at_any_verb_the_server_can_hang_until_the_client_leaves(server: MailServer, verb: SmtpVerb) -> None:
    server.on(verb).hang()
    async with talk_to(server.host, server.port) as talk:
        await up_to(talk, verb)
        await server.saw(verb)
        talk.send(b"NOOP\r\n" * 100)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(talk.reader.read(1), 0.02)
        assert len(server.open_connections) == 1
    await server.idle()


@pytest.mark.parametrize("verb", VERBS)
async def test_at_any_verb_the_server_can_reply_421_and_close(server: MailServer, verb: SmtpVerb) -> None:
    server.on(verb).unavailable()
    async with talk_to(server.host, server.port) as talk:
        await up_to(talk, verb)
        assert await talk.reader.read() == b"421 4.3.2 Service not available\r\n"


async def test_flaky_recipient_is_accepted_at_the_third_try(server: MailServer) -> None:
    server.on("rcpt", address="flaky@plant.example").reply(451, "4.2.1 busy").times(2, per="address")
    both = ["flaky@plant.example", "ops@plant.example"]
    async with client(server) as smtp:
        refused = [(await smtp.sendmail("a@x.example", both, MESSAGE))[0] for _ in range(3)]
    assert [list(answers) for answers in refused] == [["flaky@plant.example"], ["flaky@plant.example"], []]
    assert [list(mail.recipients) for mail in server.mails] == [both[1:], both[1:], both]


async def test_each_message_can_be_refused_twice(server: MailServer) -> None:
    server.on("dot", address="flaky@plant.example").reply(451, "4.3.0 later").times(2, per="message")
    async with client(server) as smtp:
        for attempt in range(3):
            for message in (MESSAGE, MESSAGE.replace(b"1@", b"2@")):
                if attempt < 2:
                    with pytest.raises(aiosmtplib.SMTPDataError, match="later"):
                        await smtp.sendmail("a@x.example", ["flaky@plant.example"], message)
                else:
                    await smtp.sendmail("a@x.example", ["flaky@plant.example"], message)
    assert [mail.message_id for mail in server.mails] == ["<1@plant>", "<2@plant>"]


async def test_recipients_beyond_fifty_are_deferred(server: MailServer, talk: Talk) -> None:
    server.on("rcpt").after(50, per="transaction").reply(452, "4.5.3 too many recipients")
    await talk.hello()
    for _ in range(2):
        await talk("RSET")
        await talk("MAIL FROM:<a@x.example>")
        codes = [(await talk(f"RCPT TO:<{n}@x.example>"))[:3] for n in range(52)]
        assert codes == ["250"] * 50 + ["452"] * 2


async def test_three_recipients_can_have_different_results(server: MailServer) -> None:
    server.on("rcpt", address="b@x.example").reply(450).times(1)
    server.on("rcpt", address="c@x.example").reply(550, "5.1.1 no such user")
    async with client(server) as smtp:
        refused, _ = await smtp.sendmail("s@x.example", ["a@x.example", "b@x.example", "c@x.example"], MESSAGE)
        assert {address: answer.code for address, answer in refused.items()} == {"b@x.example": 450, "c@x.example": 550}
        refused, _ = await smtp.sendmail("s@x.example", ["b@x.example", "c@x.example"], MESSAGE)
        assert list(refused) == ["c@x.example"]
    assert [mail.recipients for mail in await server.received(2)] == [("a@x.example",), ("b@x.example",)]


async def test_wrong_command_uses_up_no_turn_of_a_rule(server: MailServer, talk: Talk) -> None:
    rule = server.on("rcpt").reply(550).times(1)
    await talk.hello()
    assert (await talk("RCPT TO:<a@x.example>"))[:3] == "503"
    await talk("MAIL FROM:<a@x.example>")
    assert (await talk("RCPT TO:<>"))[:3] == "501"
    assert rule.hits == 0
    assert (await talk("RCPT TO:<a@x.example>"))[:3] == "550"


async def test_positive_reply_of_a_rule_accepts_the_command(server: MailServer, talk: Talk) -> None:
    server.on("ehlo").reply(250, "odd.example\nSIZE 7\nX-ODD")
    server.on("rcpt").reply(251, "2.1.5 forwarded")
    server.on("dot").reply(250, "2.0.0 queued as 4711")
    assert await talk.hello() == "250-odd.example\n250-SIZE 7\n250 X-ODD"
    await talk.until_data("ops@plant.example")
    talk.send(MESSAGE + b".\r\n")
    assert await talk.reply() == "250 2.0.0 queued as 4711"
    assert server.mails[0].recipients == ("ops@plant.example",)


async def test_after_a_refusing_banner_only_quit_is_understood(server: MailServer) -> None:
    server.on("connect").reply(554, "5.3.2 no service here")
    async with talk_to(server.host, server.port) as talk:
        assert (await talk.reply())[:3] == "554"
        assert (await talk("EHLO c"))[:3] == "503"
        assert (await talk("QUIT"))[:3] == "221"


async def test_mail_can_be_accepted_without_a_reply(server: MailServer, talk: Talk) -> None:
    server.on("dot").keep_mail().close().times(1)
    await up_to(talk, "dot")
    assert await talk.reader.read() == b""
    assert [mail.raw for mail in server.mails] == [MESSAGE]


async def test_an_answer_can_wait_for_an_event(server: MailServer, talk: Talk) -> None:
    gate = asyncio.Event()
    server.on("dot").wait(gate)
    await up_to(talk, "dot")
    await server.saw("dot")
    assert (server.mails, len(server.open_connections)) == ([], 1)
    gate.set()
    assert (await talk.reply())[:3] == "250"
    assert server.mail_count == 1


async def test_a_client_that_leaves_while_it_waits_has_not_delivered(server: MailServer) -> None:
    server.on("dot").wait(asyncio.Event())
    async with talk_to(server.host, server.port) as talk:
        await up_to(talk, "dot")
        await server.saw("dot")
    await server.idle()
    assert server.mail_count == 0


async def test_an_answer_can_come_nine_minutes_late() -> None:
    clock = ManualClock()
    async with MailServer(clock=clock) as server, talk_to(server.host, server.port) as talk:
        server.on("dot").keep_mail().delay(540)
        await up_to(talk, "dot")
        await clock.wait_sleepers()
        assert server.mail_count == 1
        reply = asyncio.create_task(talk.reply())
        clock.advance(539)
        assert (clock.sleeping, reply.done()) == (1, False)
        clock.advance(1)
        assert (await reply)[:3] == "250"
        assert server.mail_count == 1


async def test_an_answer_can_drip_byte_by_byte(server: MailServer) -> None:
    tap = Tap()
    server.on("connect").reply(220, "slow").drip(tap)
    async with talk_to(server.host, server.port) as talk:
        for count, drops in ((1, b"2"), (3, b"20 ")):
            tap.drop(count)
            assert await talk.reader.readexactly(count) == drops
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(talk.reader.read(1), 0.02)
        tap.open()
        assert await talk.reply() == "slow"
        assert (await talk("EHLO c"))[:3] == "250"


async def test_answer_can_drip_by_the_clock_of_the_server() -> None:
    clock = ManualClock()
    async with MailServer(clock=clock) as server:
        server.on("connect").drip(5)
        async with talk_to(server.host, server.port) as talk:
            for byte in b"220 ma":
                await clock.wait_sleepers()
                clock.advance(5)
                assert await talk.reader.readexactly(1) == bytes([byte])
    assert clock.monotonic() == 30


async def test_an_answer_can_be_followed_by_the_end(server: MailServer, talk: Talk) -> None:
    server.on("dot").then_close()
    await up_to(talk, "dot")
    assert (await talk.reader.read()).startswith(b"250 2.0.0 Accepted")
    assert server.mail_count == 1


async def test_an_answer_can_be_followed_by_silence(server: MailServer, talk: Talk) -> None:
    server.on("ehlo").then_hang()
    await talk.hello()
    talk.send(b"NOOP\r\n")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(talk.reader.read(1), 0.02)


async def test_an_answer_can_be_followed_by_a_reset(server: MailServer, talk: Talk) -> None:
    server.on("dot").then_reset()
    await up_to(talk, "dot")
    await server.idle()
    with pytest.raises(ConnectionResetError):
        await talk.reader.readexactly(1000)
    assert server.mail_count == 1


async def test_reply_can_be_any_bytes(server: MailServer, talk: Talk) -> None:
    server.on("ehlo").raw(b"250-half\r\n250")
    server.on("noop").inject(b"550 and more\r\n")
    await talk.reply()
    talk.send(b"EHLO c\r\n")
    assert await talk.reader.readexactly(13) == b"250-half\r\n250"
    assert (await talk("MAIL FROM:<a@x.example>"))[:3] == "503"
    assert (await talk("NOOP"), await talk.reply()) == ("250 2.0.0 OK", "550 and more")


async def test_helo_works_if_ehlo_is_unknown(server: MailServer) -> None:
    server.on("ehlo").reply(502, "5.5.1 never heard of it")
    async with client(server) as smtp:
        await smtp.sendmail("a@x.example", ["b@x.example"], MESSAGE)
    assert (server.seen["helo"], server.mail_count) == (1, 1)


async def test_idle_connection_can_get_421_be_closed_or_reset(server: MailServer) -> None:
    async with talk_to(server.host, server.port) as talk:
        await talk.hello()
        server.connections[0].say(421, "4.4.2 idle for too long")
        server.connections[0].close()
        assert await talk.reader.read() == b"421 4.4.2 idle for too long\r\n"
    async with talk_to(server.host, server.port) as talk:
        await talk.hello()
        server.connections[1].reset()
        with pytest.raises(ConnectionResetError):
            await talk.reader.read()
    await server.idle()


async def test_behave_removes_all_rules(server: MailServer, talk: Talk) -> None:
    server.on("ehlo").hang()
    server.on("dot").close()
    server.behave()
    await up_to(talk, "dot")
    assert (await talk.reply())[:3] == "250"


async def test_a_hanging_server_stops_at_once(server: MailServer, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fieldpost.testing.mail.server._GRACE_S", 60)
    server.on("ehlo").hang()
    await up_to(talk, "ehlo")
    await server.saw("ehlo")
    async with asyncio.timeout(30):
        await server.stop()
    assert server.open_connections == []


async def test_a_client_that_floods_a_hanging_server_and_leaves_is_noticed() -> None:
    async with MailServer(limits=Limits(message_bytes=1000)) as server:
        server.on("noop").hang()
        async with talk_to(server.host, server.port) as talk:
            await talk.hello()
            talk.send(b"NOOP\r\n" + b"x" * 3_000_000)
            await talk.writer.drain()
        await server.idle()


async def test_a_client_that_floods_a_waiting_server_is_slowed_down() -> None:
    async with MailServer(limits=Limits(message_bytes=1000)) as server, talk_to(server.host, server.port) as talk:
        go_on = asyncio.Event()
        server.on("noop").wait(go_on)
        await talk.hello()
        talk.send(b"NOOP\r\n" + b"x" * 30_000_000)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(talk.writer.drain(), 0.3)
        go_on.set()
        await talk.writer.drain()
        talk.send(b"\r\n")
        assert (await talk.reply(), await talk.reply()) == ("250 2.0.0 OK", "500 5.5.2 Line too long")
