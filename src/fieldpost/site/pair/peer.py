"""The connection between the two nodes of a pair: mutual TLS, each node pinned to the other's certificate.

Theory of operation. A node trusts exactly one certificate, that of the other node: it is the only certificate authority
of the TLS context, and its fingerprint is compared again after the handshake, so that a certificate that it signed does
not count. Host names play no role. The connection is refused before a message is read, and no message is sent before.

A frame is its length in four bytes and a message of at most `FRAME_BYTES_MAX`. One task reads and answers, one sends;
the session is used by one of them at a time, in a thread, because it waits for the disk. A connection without a message
for `SILENCE_S` ends: both nodes send a heartbeat every second.
"""

import asyncio
import hashlib
import hmac
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fieldpost.clock import Clock
from fieldpost.core.errors import ConfigError, Denied, InvalidInput, Unavailable
from fieldpost.core.pair.leadership import HEARTBEAT_EVERY_S, SILENCE_S
from fieldpost.link.messages import FRAME_BYTES_MAX
from fieldpost.site.pair.session import PairSession
from fieldpost.system_error import reason_of

HANDSHAKE_S = 10.0
POLL_S = 0.05
"""How often to check the buffer for changes of other processes."""
PIECE_PAUSE_S = 0.02
"""The pause between two pieces of a snapshot: scripts on this machine come first."""
REFUSED_S = 1.0
"""The wait after a refusal, before changes are sent again."""
_NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which Python does not name."""
BACKLOG = 8
"""How many connections the system keeps until they are accepted; only one node connects."""


@dataclass(frozen=True, slots=True)
class PairIdentity:
    """The certificate and key of this node, and the certificate of the other one."""

    certificate_file: Path
    key_file: Path
    peer_certificate: str = field(repr=False)
    """PEM."""

    @property
    def peer_fingerprint(self) -> str:
        return fingerprint(ssl.PEM_cert_to_DER_cert(self.peer_certificate))

    def server_context(self) -> ssl.SSLContext:
        """The context for accepting the other node."""
        return self._pinned(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def client_context(self) -> ssl.SSLContext:
        """The context for connecting to the other node."""
        return self._pinned(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    def _pinned(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        # A pinned certificate needs no dates, and the clock of a machine without a battery starts in 1970.
        context.verify_flags |= _NO_CHECK_TIME
        try:
            context.load_cert_chain(self.certificate_file, self.key_file)
            context.load_verify_locations(cadata=self.peer_certificate)
        except (OSError, ValueError) as error:
            raise ConfigError("pair.certificate", f"the certificates of the pair cannot be used: {error}") from None
        return context


def fingerprint(certificate: bytes) -> str:
    """SHA-256 of a certificate in DER, in hexadecimal."""
    return hashlib.sha256(certificate).hexdigest()


class PairConnection:
    """One connection to the other node."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, session: PairSession, clock: Clock
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._session = session
        self._clock = clock
        self._turn = asyncio.Lock()
        self._answered = asyncio.Event()

    async def run(self) -> None:
        """Exchange messages until the connection ends. Raises FieldpostError with the reason."""
        tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            self._writer.close()
            with suppress(OSError):
                await self._writer.wait_closed()
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _read(self) -> None:
        try:
            while True:
                async with asyncio.timeout(SILENCE_S):
                    data = await self._frame()
                async with self._turn:
                    await self._send(await asyncio.to_thread(self._session.receive, data))
                self._answered.set()
        except TimeoutError:
            raise Unavailable("pair.silent", f"the other node was silent for {SILENCE_S:g} s") from None
        except (OSError, EOFError) as error:
            raise _lost(error) from None

    async def _write(self) -> None:
        try:
            async with self._turn:
                await self._send(await asyncio.to_thread(self._session.greeting))
            beat_at = self._clock.monotonic() - HEARTBEAT_EVERY_S
            while True:
                async with self._turn:
                    refusal, self._session.last_refusal = self._session.last_refusal, None
                    while (posted := self._session.posted()) is not None:
                        await self._send(posted)
                    data = None if refusal else await asyncio.to_thread(self._session.next_message)
                    await self._send(data)
                    if self._clock.monotonic() - beat_at >= HEARTBEAT_EVERY_S:
                        await self._send(self._session.heartbeat())
                        beat_at = self._clock.monotonic()
                await self._rest(REFUSED_S if refusal else POLL_S)
                if self._session.is_copying:
                    await self._clock.sleep(PIECE_PAUSE_S)
        except OSError as error:
            raise _lost(error) from None

    async def _rest(self, longest_s: float) -> None:
        """Wait for an answer, which allows the next batch, or until changes are checked again."""
        self._answered.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                await self._answered.wait()

    async def _frame(self) -> bytes:
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        if size > FRAME_BYTES_MAX:
            raise InvalidInput("link.too_large", f"the message has {size} bytes; the maximum is {FRAME_BYTES_MAX}")
        return await self._reader.readexactly(size)

    async def _send(self, data: bytes | None) -> None:
        if data is not None:
            self._writer.write(len(data).to_bytes(4, "big") + data)
            await self._writer.drain()


class PairListener:
    """Accepts connections of the other node on a named address."""

    def __init__(self, identity: PairIdentity, session: Callable[[], PairSession], clock: Clock) -> None:
        self._identity = identity
        self._session = session
        self._clock = clock
        self._current: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None
        self.refused = 0
        """Connections that were not the other node's."""

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port. Raises ConfigError if the address cannot be used or means all interfaces."""
        if host in ("", "*", "0.0.0.0", "::"):
            raise ConfigError("pair.listen", f"listen must name one address of this machine, got {host!r}")
        try:
            self._server = await asyncio.start_server(
                self._accept,
                host,
                port,
                ssl=self._identity.server_context(),
                ssl_handshake_timeout=HANDSHAKE_S,
                backlog=BACKLOG,
            )
        except OSError as error:
            raise ConfigError("pair.listen", f"{host}:{port} cannot be used: {error.strerror or error}") from None
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    @property
    def is_connected(self) -> bool:
        return self._current is not None and not self._current.done()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._current is not None:
            self._current.cancel()
            await asyncio.gather(self._current, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            _check_peer(writer, self._identity)
        except Denied:
            self.refused += 1
            writer.close()
            return
        # The newest connection counts: the other node opens one only after it has given up the former.
        if self._current is not None:
            self._current.cancel()
        connection = PairConnection(reader, writer, self._session(), self._clock)
        # In a separate task: asyncio prints a traceback when the task of a callback is cancelled.
        self._current = current = asyncio.create_task(connection.run())
        await asyncio.gather(current, return_exceptions=True)


async def connect(identity: PairIdentity, host: str, port: int, session: PairSession, clock: Clock) -> PairConnection:
    """Open a connection to the other node. Raises Unavailable, or Denied if it is not the other node."""
    try:
        async with asyncio.timeout(HANDSHAKE_S):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=identity.client_context(), server_hostname=""
            )
    except ssl.SSLError as error:
        raise _not_the_peer(str(error)) from None
    except (OSError, TimeoutError) as error:
        raise Unavailable(
            "pair.unreachable", f"the other node at {host}:{port} does not answer: {reason_of(error)}"
        ) from None
    _check_peer(writer, identity)
    return PairConnection(reader, writer, session, clock)


def _check_peer(writer: asyncio.StreamWriter, identity: PairIdentity) -> None:
    """Raise Denied unless the certificate is that of the other node, not only one that it signed."""
    tls = writer.get_extra_info("ssl_object")
    shown = tls.getpeercert(binary_form=True) if tls is not None else None
    if shown is None or not hmac.compare_digest(fingerprint(shown), identity.peer_fingerprint):
        writer.close()
        raise _not_the_peer("it shows another certificate")


def _not_the_peer(why: str) -> Denied:
    return Denied("pair.stranger", f"the peer is not the other node of this pair: {why}")


def _lost(error: Exception) -> Unavailable:
    return Unavailable("pair.lost", f"the connection to the other node broke: {reason_of(error)}")
