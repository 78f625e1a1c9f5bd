"""The mail server on its own thread, for tests that have no loop."""

import smtplib
import threading

import pytest

from fieldpost.testing import MailServerThread

MESSAGE = b"Subject: Pump 3\r\nMessage-ID: <1@plant>\r\n\r\nhot\r\n"


def send(server: MailServerThread, count: int = 1) -> None:
    with smtplib.SMTP(server.host, server.port, timeout=10) as client:
        for _ in range(count):
            client.sendmail("pump@plant.example", ["ops@plant.example"], MESSAGE)


def test_mails_can_be_awaited_synchronously() -> None:
    with MailServerThread(keep_raw=False) as server:
        senders = [threading.Thread(target=send, args=(server, 50)) for _ in range(4)]
        for sender in senders:
            sender.start()
        mails = server.received(200)
        for sender in senders:
            sender.join()
        server.saw("quit", 4)
        server.idle()
        assert (len(mails), server.mail_count, len(server.mails)) == (200, 200, 200)
        assert {mail.connection for mail in mails} == {1, 2, 3, 4}
        assert not any(connection.is_open for connection in server.connections)


def test_rules_can_be_added_from_the_thread_of_the_test() -> None:
    with MailServerThread() as server:
        server.on("dot").reply(451, "later").times(1)
        with pytest.raises(smtplib.SMTPDataError):
            send(server)
        send(server)
        rule = server.call(lambda there: there.on("rcpt").reply(550))
        with pytest.raises(smtplib.SMTPRecipientsRefused):
            send(server)
        assert rule.hits == 1
        server.behave()
        send(server)
        assert server.mail_count == 2


def test_gate_can_be_opened_from_the_thread_of_the_test() -> None:
    with MailServerThread() as server:
        gate = server.gate()
        server.on("dot").wait(gate)
        sender = threading.Thread(target=send, args=(server,))
        sender.start()
        server.saw("dot")
        assert server.mail_count == 0
        gate.open()
        server.received(1)
        sender.join()


def test_server_can_stop_and_restart() -> None:
    with MailServerThread() as server:
        server.stop()
        with pytest.raises(ConnectionRefusedError):
            send(server)
        server.start()
        send(server)
        assert server.mail_count == 1


def test_timed_out_wait_reports_received_commands() -> None:
    with MailServerThread() as server:
        send(server)
        with pytest.raises(TimeoutError, match="2 mails; 1 mails accepted"):
            server.received(2, timeout_s=0.01)


def test_occupied_port_is_reported_at_once() -> None:
    with MailServerThread() as server, pytest.raises(OSError, match="in use"), MailServerThread(port=server.port):
        pass
