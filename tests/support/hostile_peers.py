"""A process that holds hostile connections of one kind against central, until its standard input ends.

    echo '{"port": 8080, "kind": "idle", …}' | python -m support.hostile_peers

Each connection opens again as soon as central ends it. The process prints a line once all have been open. It is a
process of its own, so that its memory and its work are not taken for central's.
"""

import asyncio
import itertools
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import msgspec

LARGE_PATH = "/static/vendor/htmx.min.js"
REOPEN_S = 0.5
ESTABLISHED = 1
"""The state of a TCP connection, as Linux numbers it."""
PING = bytes([0x89, 0x80 | 100]) + bytes(104)


class Attack(msgspec.Struct, frozen=True, kw_only=True):
    """What the process reads from its first line of input."""

    port: int
    kind: str
    count: int
    addresses: int
    """The number of loopback addresses that the connections come from."""
    token: str
    """Of the site that a ping flood pretends to be."""
    has_tls: bool


@dataclass(frozen=True)
class Peer:
    """One hostile connection: plain bytes, over TLS if central uses it."""

    token: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        raw = self.writer.get_extra_info("socket")
        # A connection that pauses reading is not told of its end, over TLS not even by its writes.
        if raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != ESTABLISHED:
            raise ConnectionResetError
        self.writer.write(data)
        await self.writer.drain()

    async def until_closed(self) -> None:
        while await self.reader.read(65536):
            pass

    def stop_reading(self) -> None:
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]


Behaviour = Callable[[Peer], Awaitable[None]]


async def slow_head(peer: Peer) -> None:
    await peer.send(b"GET / HTTP/1.1\r\nHost: central\r\n")
    while True:
        await peer.send(b"X")
        await asyncio.sleep(0.1)


async def slow_body(peer: Peer) -> None:
    await peer.send(
        b"POST /login HTTP/1.1\r\nHost: central\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        b"Content-Length: 9000\r\n\r\n"
    )
    while True:
        await peer.send(b"x")
        await asyncio.sleep(0.1)


async def slow_reader(peer: Peer) -> None:
    peer.stop_reading()
    request = f"GET {LARGE_PATH} HTTP/1.1\r\nHost: central\r\n\r\n".encode()
    while True:
        await peer.send(request * 4)
        await asyncio.sleep(0.05)


async def idle(peer: Peer) -> None:
    await peer.until_closed()


async def ping_flood(peer: Peer) -> None:
    await peer.send(
        b"GET /link/v1/data HTTP/1.1\r\nHost: central\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        b"Authorization: Bearer " + peer.token.encode() + b"\r\n\r\n"
    )
    peer.stop_reading()
    while True:
        await peer.send(PING * 100)
        await asyncio.sleep(0.01)


KINDS: dict[str, Behaviour] = {
    "slow head": slow_head,
    "slow body": slow_body,
    "slow reader": slow_reader,
    "idle": idle,
    "ping flood": ping_flood,
}
SILENT = "silent TLS"
"""Connects to a TLS port and never begins the handshake."""


@dataclass
class Attackers:
    """The connections of one process."""

    attack: Attack
    opened: int = 0

    async def run(self) -> None:
        """Until the standard input ends."""
        attack = self.attack
        sources = itertools.cycle(f"127.0.{1 + n // 250}.{1 + n % 250}" for n in range(attack.addresses))
        tasks = [asyncio.create_task(self._keep_open(next(sources))) for _ in range(attack.count)]
        await asyncio.to_thread(sys.stdin.read)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _count(self) -> None:
        # Before a TLS handshake, which central refuses beyond its limit for the address.
        self.opened += 1
        if self.opened == self.attack.count:
            print("all were open", flush=True)

    async def _keep_open(self, source: str) -> None:
        is_silent = self.attack.kind == SILENT
        behaviour = idle if is_silent else KINDS[self.attack.kind]
        tls = _any_certificate() if self.attack.has_tls and not is_silent else None
        while True:
            writer: asyncio.StreamWriter | None = None
            with suppress(OSError, EOFError, asyncio.IncompleteReadError, TimeoutError):
                raw = socket.socket()
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                raw.setblocking(False)
                raw.bind((source, 0))
                try:
                    async with asyncio.timeout(5):
                        await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", self.attack.port))
                        self._count()
                        reader, writer = await asyncio.open_connection(
                            sock=raw, ssl=tls, server_hostname="127.0.0.1" if tls else None
                        )
                    await behaviour(Peer(self.attack.token, reader, writer))
                finally:
                    if writer is not None:
                        writer.transport.abort()
                    else:
                        raw.close()
            await asyncio.sleep(REOPEN_S)


def _any_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def main() -> None:
    attackers = Attackers(msgspec.json.decode(sys.stdin.readline(), type=Attack))
    asyncio.run(attackers.run())


if __name__ == "__main__":
    main()
