"""TLS on accepted connections: all bytes arrive, ends are orderly, and a peer that does not read costs little."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import trustme

from fieldpost.front.http_limits import WRITE_BYTES
from fieldpost.front.tls_transport import RECORD_BYTES, SOCKET_BYTES, TlsTransport
from support.running_central import until

DEADLINE_S = 20
MIB = 1024 * 1024
ANSWER = bytes(range(256)) * (3 * MIB // 256)


class Recorder(asyncio.Protocol):
    """Notes what it is told; `answer` is written as fast as the transport asks for it."""

    def __init__(self) -> None:
        self.transport: TlsTransport | None = None
        self.received = b""
        self.events: list[str] = []
        self.answer = memoryview(b"")
        self.most = 0
        """The most bytes that have waited in the transport."""
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, TlsTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> None:
        self.events.append("eof")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")

    def pause_writing(self) -> None:
        self._is_paused = True
        self.events.append("pause")

    def resume_writing(self) -> None:
        self._is_paused = False
        self.write_on()

    def write_on(self) -> None:
        assert self.transport is not None
        while self.answer and not self._is_paused:
            piece, self.answer = self.answer[:50_000], self.answer[50_000:]
            self.transport.write(piece)
            self.most = max(self.most, self.transport.get_write_buffer_size())


@dataclass
class Client:
    """A client that encrypts on its own, so that it can also send and read as no library would."""

    raw: socket.socket
    context: ssl.SSLContext
    incoming: ssl.MemoryBIO = field(default_factory=ssl.MemoryBIO)
    outgoing: ssl.MemoryBIO = field(default_factory=ssl.MemoryBIO)

    def __post_init__(self) -> None:
        self.tls = self.context.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")

    async def shake_hands(self, *, at_once: int = 65_536) -> None:
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.flush(at_once)
                await self.take()
            else:
                await self.flush(at_once)
                return

    async def send(self, *messages: bytes, at_once: int = 65_536) -> None:
        for message in messages:
            self.tls.write(message)
        await self.flush(at_once)

    async def flush(self, at_once: int = 65_536) -> None:
        while data := self.outgoing.read(at_once):
            await asyncio.get_running_loop().sock_sendall(self.raw, data)

    async def take(self) -> bool:
        """Receive something; False at the end of the connection."""
        data = await asyncio.get_running_loop().sock_recv(self.raw, 65_536)
        self.incoming.write(data)
        return bool(data)

    async def read(self) -> bytes:
        """The next bytes; empty after the close alert of the server."""
        while True:
            try:
                return self.tls.read(65_536)
            except ssl.SSLWantReadError:
                assert await self.take(), "the connection ended without an alert"
            except ssl.SSLZeroReturnError:
                return b""

    async def read_all(self) -> bytes:
        pieces = []
        while piece := await self.read():
            pieces.append(piece)
        return b"".join(pieces)


@dataclass
class Line:
    """Both ends of a connection, before the handshake."""

    client: Client
    recorder: Recorder
    server: TlsTransport

    async def shake_hands(self) -> TlsTransport:
        await self.client.shake_hands()
        assert await self.server.established()
        return self.server


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    authority = trustme.CA()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(serving)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(listening.getsockname())
        raw.setblocking(False)
        accepted, _ = listening.accept()
        accepted.setblocking(False)
        recorder = Recorder()
        server = TlsTransport(serving, lambda: recorder, memoryview(bytearray(65_536)))
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.get_running_loop().connect_accepted_socket(lambda: server, accepted)
            yield Line(Client(raw, trusting), recorder, server)
            server.abort()


async def test_bytes_that_arrive_one_by_one_are_the_same_bytes(line: Line) -> None:
    await line.client.shake_hands(at_once=1)
    assert await line.server.established()
    await line.client.send(b"first", b"second" * 3_000, at_once=7)
    await until(lambda: line.recorder.received == b"first" + b"second" * 3_000, what="the messages")


@pytest.mark.threat(28)
async def test_client_that_does_not_read_uses_little_memory_and_gets_the_whole_answer_later(line: Line) -> None:
    server = await line.shake_hands()
    line.recorder.answer = memoryview(ANSWER)
    line.recorder.write_on()
    assert "pause" in line.recorder.events
    socket_ = server._socket
    assert socket_ is not None
    # The rest is what the protocol wrote, not a copy of it.
    assert 0 < socket_.get_write_buffer_size() <= SOCKET_BYTES + RECORD_BYTES + 1024
    assert server._outgoing.pending == 0
    received = b""
    while len(received) < len(ANSWER):
        received += await line.client.read()
    assert received == ANSWER
    assert line.recorder.most <= WRITE_BYTES + 50_000 + SOCKET_BYTES + RECORD_BYTES + 1024
    assert server.get_write_buffer_size() == 0


async def test_answer_before_a_close_arrives_complete_while_the_client_still_sends(line: Line) -> None:
    server = await line.shake_hands()
    server.write(ANSWER)
    server.close()
    server.close()
    server.write(b"too late")
    await line.client.send(*[b"x" * 16_000] * 50)
    assert await line.client.read_all() == ANSWER
    assert line.recorder.received == b""
    assert "lost" not in line.recorder.events, "the server waits for the client's end"
    line.client.tls.unwrap()
    await line.client.flush()
    await until(lambda: line.recorder.events == ["pause", "lost"], what="the end")


async def test_close_notify_of_the_client_is_answered(line: Line) -> None:
    server = await line.shake_hands()
    await line.client.send(b"hello")
    with pytest.raises(ssl.SSLWantReadError):
        line.client.tls.unwrap()
    await line.client.flush()
    assert await line.client.read_all() == b""
    assert not await line.client.take()
    await until(lambda: line.recorder.events == ["eof", "lost"], what="the end")
    assert line.recorder.received == b"hello"
    assert server.is_closing()


async def test_reading_pauses_and_resumes_without_loss(line: Line) -> None:
    server = await line.shake_hands()
    server.pause_reading()
    await line.client.send(b"y" * 16_000, b"z" * 16_000)
    for _ in range(20):
        await asyncio.sleep(0)
    assert line.recorder.received == b""
    server.resume_reading()
    await until(lambda: line.recorder.received == b"y" * 16_000 + b"z" * 16_000, what="the messages")


@pytest.mark.parametrize("is_established", [False, True])
async def test_bytes_other_than_tls_end_the_connection_without_a_traceback(
    line: Line, caplog: pytest.LogCaptureFixture, is_established: bool
) -> None:
    if is_established:
        await line.shake_hands()
    await asyncio.get_running_loop().sock_sendall(line.client.raw, b"GET / HTTP/1.1\r\nHost: central\r\n\r\n" * 9)
    if is_established:
        await until(lambda: line.recorder.events == ["lost"], what="the end")
    else:
        assert not await line.server.established()
        assert line.recorder.transport is None
    assert line.server.is_closing()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


async def test_a_connection_that_ends_during_the_handshake_is_never_seen(line: Line) -> None:
    with pytest.raises(ssl.SSLWantReadError):
        line.client.tls.do_handshake()
    await line.client.flush()
    line.client.raw.close()
    assert not await line.server.established()
    assert (line.recorder.transport, line.recorder.events) == (None, [])
