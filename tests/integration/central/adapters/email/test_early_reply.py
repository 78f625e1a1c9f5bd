"""A reply that arrives while a long message is still being written is the reply, also if the server then hangs up."""

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
import uvloop

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.core.delivery.outcome import Outcome, PermanentFailure, TransientFailure
from support.mailing import envelope

BODIES = {"250 kB": ("x" * 78 + "\n") * 3_200, "8 MB": ("x" * 78 + "\n") * 100_000}
TOO_BIG = b"552 5.3.4 message too big\r\n"


class EarlyServer:
    """A mail server in a thread that replies after a few bytes of the message and ends the connection its own way."""

    def __init__(self, how: str, reply: bytes) -> None:
        self._how = how
        self._reply = reply
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        # On Linux a shutdown ends the thread's accept, a close alone does not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(20)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        with connection.makefile("rb", buffering=0) as lines:
            connection.sendall(b"220 ready\r\n")
            for answer in (b"250 ok\r\n", b"250 ok\r\n", b"250 ok\r\n", b"354 go on\r\n"):
                lines.readline()
                connection.sendall(answer)
            connection.recv(1000)
            connection.sendall(self._reply)
            match self._how:
                case "reset":
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                case "waits":
                    while connection.recv(1):  # slower than the client writes, until it hangs up
                        pass


@pytest.fixture(params=["close", "reset", "waits"])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(how: str) -> Iterator[EarlyServer]:
    server = EarlyServer(how, TOO_BIG)
    yield server
    server.close()


async def deliver(port: int, body: str, count: int = 1) -> list[Outcome]:
    adapter = EmailAdapter()
    settings = {"port": port, "data_timeout_s": 30}
    try:
        return [await adapter.deliver(envelope(None, settings=settings, body=body)) for _ in range(count)]
    finally:
        await adapter.close()


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
@pytest.mark.parametrize("loop", [asyncio, uvloop], ids=["asyncio", "uvloop"])
def test_rejection_in_the_middle_of_the_message_counts(server: EarlyServer, how: str, loop, body: str) -> None:  # type: ignore[no-untyped-def]
    for outcome in loop.run(deliver(server.port, body, 10 if how != "waits" else 1)):
        assert isinstance(outcome, PermanentFailure), outcome
        assert outcome.reply == "552 5.3.4 message too big"


@pytest.mark.parametrize("reply", [b"", b"354 go on\r\n", b"250 thanks\r\n"], ids=["none", "354", "250"])
def test_no_other_reply_in_the_middle_of_the_message_counts(reply: bytes) -> None:
    server = EarlyServer("close", reply)
    [outcome] = asyncio.run(deliver(server.port, BODIES["8 MB"]))
    server.close()
    assert isinstance(outcome, TransientFailure), outcome
    assert outcome.phase == "data"
