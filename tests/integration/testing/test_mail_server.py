"""The mail server as it behaves when nothing is asked of it, seen by real clients over real sockets."""

import asyncio
import smtplib
import socket
from collections.abc import AsyncIterator
from email.message import EmailMessage

import aiosmtplib
import pytest

from fieldpost.testing import MailServer, ManualClock, ReceivedMail
from fieldpost.testing.mail import Limits
from support.smtp import talk_to

MESSAGE = b"Subject: Pump 3\r\nMessage-ID: <1@plant>\r\n\r\nhot\r\n"


@pytest.fixture
async def server() -> AsyncIterator[MailServer]:
    async with MailServer() as server:
        yield server


async def send(server: MailServer, message: bytes = MESSAGE, *recipients: str) -> None:
    async with aiosmtplib.SMTP(hostname=server.host, port=server.port, start_tls=False) as client:
        await client.sendmail("pump@plant.example", list(recipients) or ["ops@plant.example"], message)


async def test_a_mail_is_recorded_as_it_was_sent() -> None:
    clock = ManualClock()
    async with MailServer(clock=clock) as server:
        await send(server, MESSAGE, "ops@plant.example", "night@plant.example")
        [mail] = await server.received()
    assert (mail.number, mail.connection) == (1, 1)
    assert (mail.sender, mail.recipients) == ("pump@plant.example", ("ops@plant.example", "night@plant.example"))
    assert (mail.raw, mail.received_at) == (MESSAGE, clock.now())
    assert (mail.subject, mail.body, mail.message_id) == ("Pump 3", "hot\n", "<1@plant>")


async def test_client_of_the_standard_library_is_served(server: MailServer) -> None:
    def send_two() -> None:
        with smtplib.SMTP(server.host, server.port) as client:
            message = EmailMessage()
            message["Subject"], message["From"], message["To"] = "Kühlung", "pump@plant.example", "ops@plant.example"
            message.set_content("Größe 3\n.\n..dots\n")
            client.send_message(message)
            client.sendmail("pump@plant.example", ["ops@plant.example"], MESSAGE)
            assert client.noop()[0] == 250
            assert client.verify("ops")[0] == 252

    await asyncio.to_thread(send_two)
    first, second = await server.received(2)
    assert (first.subject, first.body) == ("Kühlung", "Größe 3\n.\n..dots\n")
    assert second.raw == MESSAGE
    assert [mail.connection for mail in (first, second)] == [1, 1]


@pytest.mark.parametrize(
    ("sent", "raw"),
    [
        (b".\r\n", b""),
        (b"a\r\n.\r\n", b"a\r\n"),
        (b"..\r\n.\r\n", b".\r\n"),
        (b"..a\r\n...b\r\n.\r\n", b".a\r\n..b\r\n"),
        (b".a\r\n.\r\n", b"a\r\n"),
        (b"\r\n\r\n.\r\n", b"\r\n\r\n"),
        (b"a\n.\nb\r\n.\r\n", b"a\n.\nb\r\n"),
        (b"a\r.\rb\r\n.\r\n", b"a\r.\rb\r\n"),
        (b"a\n.\r\nb\r\n.\r\n", b"a\n.\r\nb\r\n"),
    ],
)
async def test_dot_stuffing_is_undone_and_only_crlf_dot_crlf_ends_a_message(
    server: MailServer, sent: bytes, raw: bytes
) -> None:
    async with talk_to(server.host, server.port) as talk:
        await talk.hello()
        await talk.until_data()
        talk.send(sent)
        assert (await talk.reply()).startswith("250 2.0.0 Accepted")
    assert [mail.raw for mail in server.mails] == [raw]


async def test_message_sent_byte_by_byte_is_complete(server: MailServer) -> None:
    async with talk_to(server.host, server.port) as talk:
        await talk.hello()
        await talk.until_data()
        for byte in b"..a\r\n\r\n.b\r\n.\r\n":
            talk.send(bytes([byte]))
            await asyncio.sleep(0)
        await talk.reply()
    assert server.mails[0].raw == b".a\r\n\r\nb\r\n"


async def test_pipelined_commands_are_answered_in_their_order(server: MailServer) -> None:
    async with talk_to(server.host, server.port) as talk:
        await talk.hello()
        talk.send(
            b"MAIL FROM:<a@x.example>\r\nRCPT TO:<b@x.example>\r\nRCPT TO:<>\r\nRCPT TO:<c@x.example>\r\nDATA\r\n"
            b"one\r\n.\r\nMAIL FROM:<>\r\nRCPT TO:<d@x.example>\r\nDATA\r\ntwo\r\n.\r\nQUIT\r\n"
        )
        replies = [(await talk.reply())[:3] for _ in range(11)]
        assert await talk.reader.read() == b""
    assert replies == ["250", "250", "501", "250", "354", "250", "250", "250", "354", "250", "221"]
    first, second = server.mails
    assert (first.recipients, first.raw) == (("b@x.example", "c@x.example"), b"one\r\n")
    assert (second.sender, second.recipients, second.raw) == ("", ("d@x.example",), b"two\r\n")


async def pump() -> None:
    """Let the server, which lives on the same loop, read what is there."""
    for _ in range(100):
        await asyncio.sleep(0)


async def test_a_client_that_closes_its_side_still_gets_its_answers() -> None:
    go_on = asyncio.Event()

    async def hook(_mail: ReceivedMail) -> None:
        await go_on.wait()

    async with MailServer(on_mail=hook) as server, talk_to(server.host, server.port) as talk:
        talk.send(b"EHLO c\r\nMAIL FROM:<a@x.example>\r\nRCPT TO:<b@x.example>\r\nDATA\r\nx\r\n.\r\nNOOP\r\n")
        talk.writer.write_eof()
        await server.saw("dot")
        await pump()
        go_on.set()
        answers = (await talk.reader.read()).decode().splitlines()
    assert answers[-2:] == ["250 2.0.0 Accepted as 1", "250 2.0.0 OK"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("EHLO", "501"),
        ("BDAT 5 LAST", "500"),
        ("", "500"),
        ("RCPT TO:<a@x.example>", "503"),
        ("DATA", "503"),
        ("MAIL FROM:a@x.example", "501"),
        ("MAIL TO:<a@x.example>", "501"),
        ("MAIL FROM:<a@x.example> SIZE=1000", "250"),
        ("mail from: <a@x.example> body=8bitmime smtputf8", "250"),
        ("MAIL FROM:<ä@x.example> SMTPUTF8", "250"),
        ("MAIL FROM:<ä@x.example>", "553"),
        ("MAIL FROM:<a@x.example> SIZE=10485761", "552"),
        ("MAIL FROM:<a@x.example> SIZE=many", "555"),
        ("MAIL FROM:<a@x.example> BODY=BINARYMIME", "555"),
        ("MAIL FROM:<a@x.example> RET=FULL", "555"),
        ("AUTH PLAIN AGEAYg==", "502"),
        ("STARTTLS", "502"),
        ("NOOP " + "x" * 5000, "500"),
        ("RSET", "250"),
        ("QUIT", "221"),
    ],
)
async def test_each_command_gets_its_code(server: MailServer, line: str, code: str) -> None:
    async with talk_to(server.host, server.port) as talk:
        await talk.hello()
        assert (await talk(line))[:3] == code


async def test_commands_out_of_order_are_refused(server: MailServer) -> None:
    async with talk_to(server.host, server.port) as talk:
        await talk.reply()
        assert (await talk("MAIL FROM:<a@x.example>"))[:3] == "503"
        assert (await talk("HELO client.example")) == "250 mail.example"
        assert (await talk("MAIL FROM:<a@x.example>"))[:3] == "250"
        assert (await talk("MAIL FROM:<a@x.example>"))[:3] == "503"
        assert (await talk("DATA"))[:3] == "554"
        assert (await talk("RCPT TO:<ä@x.example>"))[:3] == "553"
        assert (await talk("RCPT TO:<a@x.example> NOTIFY=NEVER"))[:3] == "555"
        assert (await talk("RSET"))[:3] == "250"
        assert (await talk("RCPT TO:<a@x.example>"))[:3] == "503"


async def test_ehlo_lists_exactly_the_offered_extensions() -> None:
    offered = ["SIZE", "STARTTLS", "AUTH", "CHUNKING"]
    async with MailServer(extensions=offered) as server, talk_to(server.host, server.port) as talk:
        assert await talk.hello() == "250-mail.example\n250-SIZE 10485760\n250 CHUNKING"
        assert (await talk("MAIL FROM:<a@x.example> BODY=8BITMIME"))[:3] == "555"
        assert (await talk("MAIL FROM:<a@x.example> SMTPUTF8"))[:3] == "555"
        server.extensions[:] = ["8BITMIME"]
        assert await talk("EHLO again") == "250-mail.example\n250 8BITMIME"
        assert (await talk("MAIL FROM:<a@x.example> SIZE=1"))[:3] == "555"


async def test_eight_bit_content_is_rejected_if_not_offered() -> None:
    async with MailServer(extensions=["SIZE"]) as server, talk_to(server.host, server.port) as talk:
        await talk.hello()
        await talk.until_data()
        assert (await talk("Größe\r\n."))[:9] == "554 5.6.1"
        await talk.until_data()
        assert (await talk("Size\r\n."))[:3] == "250"


async def test_parameters_of_mail_are_recorded(server: MailServer) -> None:
    async with talk_to(server.host, server.port) as talk:
        await talk.hello()
        await talk("MAIL FROM:<a@x.example> BODY=8bitmime SMTPUTF8")
        await talk("RCPT TO:<ä@x.example>")
        await talk("DATA")
        await talk("Größe\r\n.")
    [mail] = server.mails
    assert (mail.parameters, mail.recipients) == (("BODY=8BITMIME", "SMTPUTF8"), ("ä@x.example",))


async def test_a_message_of_exactly_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    async with MailServer(limits=Limits(message_bytes=1000)) as server, talk_to(server.host, server.port) as talk:
        assert "250 SIZE 1000" in await talk.hello()
        for size, code in ((1000, "250"), (1001, "552"), (300_001, "552"), (10, "250")):
            await talk.until_data()
            # Dots at the start of lines are doubled on their way and count once.
            message = b".\r\n" * (size // 3 - 1) + b"." * (size % 3 + 1) + b"\r\n"
            assert len(message) == size
            talk.send(message.replace(b"\r\n.", b"\r\n..").replace(b".", b"..", 1) + b".\r\n")
            assert (await talk.reply())[:3] == code, size
    assert [len(mail.raw) for mail in server.mails] == [1000, 10]


async def test_the_dot_behind_a_message_that_was_skipped_is_found_in_pieces() -> None:
    async with MailServer(limits=Limits(message_bytes=1000)) as server, talk_to(server.host, server.port) as talk:
        await talk.hello()
        await talk.until_data()
        for piece in (b"x" * 60_000, b"x" * 60_000 + b"\r\n", b".\r", b"\n"):
            talk.send(piece)
            await talk.writer.drain()
            await pump()
        assert (await talk.reply())[:3] == "552"
        assert (await talk("NOOP"))[:3] == "250"


async def test_recipients_beyond_the_limit_get_452() -> None:
    async with MailServer(limits=Limits(recipients=2)) as server, talk_to(server.host, server.port) as talk:
        await talk.hello()
        await talk("MAIL FROM:<a@x.example>")
        codes = [(await talk(f"RCPT TO:<{n}@x.example>"))[:3] for n in range(3)]
    assert codes == ["250", "250", "452"]


async def test_connection_beyond_the_limit_gets_421() -> None:
    async with MailServer(limits=Limits(connections=1)) as server:
        async with talk_to(server.host, server.port) as talk:
            await talk.hello()
            async with talk_to(server.host, server.port) as other:
                assert (await other.reply())[:3] == "421"
                assert await other.reader.read() == b""
            assert (await talk("NOOP"))[:3] == "250"
        await server.idle()
        async with talk_to(server.host, server.port) as talk:
            await talk.hello()


async def test_conversation_is_recorded_line_by_line(server: MailServer) -> None:
    await send(server)
    await server.idle()
    [connection] = server.connections
    assert [command.split(" ")[0].upper() for command in connection.commands] == [
        "EHLO",
        "MAIL",
        "RCPT",
        "DATA",
        ".",
        "QUIT",
    ]
    assert str(connection).splitlines()[0] == "S: 220 mail.example ESMTP"
    assert (connection.is_open, connection.mail_count, server.open_connections) == (False, 1, [])
    assert server.seen["dot"] == 1


async def test_only_headers_are_kept_if_bodies_are_not_requested() -> None:
    async with MailServer(keep_raw=False) as server:
        await send(server)
        [mail] = await server.received()
    assert mail.raw == b"Subject: Pump 3\r\nMessage-ID: <1@plant>\r\n\r\n"
    assert (mail.is_whole, mail.subject, mail.message_id) == (False, "Pump 3", "<1@plant>")


async def test_newest_of_very_many_mails_are_kept() -> None:
    async with MailServer(limits=Limits(mails_kept=2)) as server:
        for _ in range(3):
            await send(server)
        assert ([mail.number for mail in server.mails], server.mail_count) == ([2, 3], 3)
        with pytest.raises(ValueError, match="mails_kept is 2"):
            await server.received(3)


async def test_hook_finishes_before_the_250() -> None:
    hooked: list[ReceivedMail] = []
    go_on = asyncio.Event()

    async def hook(mail: ReceivedMail) -> None:
        hooked.append(mail)
        await go_on.wait()

    async with MailServer(on_mail=hook) as server:
        sending = asyncio.create_task(send(server))
        await server.saw("dot")
        assert (server.mails, sending.done(), len(hooked)) == ([], False, 1)
        go_on.set()
        await sending
        assert list(server.mails) == hooked


async def test_mail_is_rejected_if_the_hook_fails() -> None:
    def hook(mail: ReceivedMail) -> None:
        raise OSError(28, "No space left on device")

    async with MailServer(on_mail=hook) as server:
        with pytest.raises(aiosmtplib.SMTPDataError) as refused:
            await send(server)
        assert refused.value.code == 451
        assert "No space left on device" in refused.value.message
        assert (server.mails, server.mail_count) == ([], 0)


async def test_stopped_server_replies_421_and_restarts_on_the_same_port(server: MailServer) -> None:
    await send(server)
    port = server.port
    async with talk_to(server.host, port) as talk:
        await talk.hello()
        await server.stop()
        assert (await talk.reply())[:3] == "421"
        assert await talk.reader.read() == b""
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(server.host, port)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        # It is not there, and its port is still its own.
        other.bind((server.host, port))
    await server.start()
    assert server.port == port
    await send(server)
    assert [mail.number for mail in await server.received(2)] == [1, 2]


async def test_timeout_of_waiting_for_mails_reports_received_commands(server: MailServer) -> None:
    async with talk_to(server.host, server.port) as talk:
        await talk.hello()
        with pytest.raises(TimeoutError, match=r"(?s)for 2 mails; 0 mails accepted; seen: connect 1, ehlo 1.*C: EHLO"):
            await server.received(2, timeout_s=0.01)
        with pytest.raises(TimeoutError, match="for dot x 1"):
            await server.saw("dot", timeout_s=0.01)


async def test_mails_can_be_awaited_by_recipient(server: MailServer) -> None:
    async with asyncio.TaskGroup() as tasks:
        night = tasks.create_task(server.received(2, to="night@plant.example"))
        for recipient in ("ops", "night", "ops", "night"):
            await send(server, MESSAGE, f"{recipient}@plant.example")
    assert [mail.number for mail in night.result()] == [2, 4]


async def test_error_in_a_test_is_raised_and_not_treated_as_a_fault() -> None:
    async def run() -> None:
        async with MailServer() as server:
            server.on("ehlo", when=lambda moment: bool(1 // 0)).reply(550)
            async with talk_to(server.host, server.port) as talk:
                await talk.reply()
                talk.send(b"EHLO c\r\n")
                assert await talk.reader.read() == b""

    with pytest.raises(ZeroDivisionError):
        await run()
