"""A mail server that discards everything, and a proxy that adds delay, each in its own process."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

HOST = "127.0.0.1"


@contextmanager
def sink() -> Iterator[tuple[int, str]]:
    """Postfix's smtp-sink if installed (`tools/postfix`), else our own; its port and name."""
    port = _free_port()
    found = shutil.which("smtp-sink", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        command = [sys.executable, "-m", "bench.mail_sink", "sink", str(port)]
    else:
        command = [found, *(("-u", "nobody") if os.getuid() == 0 else ()), f"{HOST}:{port}", "1024"]
    with _process(command, port):
        yield port, "smtp-sink" if found else "own sink"


@contextmanager
def delayed(port: int, round_trip_s: float) -> Iterator[int]:
    """The port of a proxy in front of this one that delays all data, half the time in each direction."""
    own = _free_port()
    with _process([sys.executable, "-m", "bench.mail_sink", "proxy", str(own), str(port), str(round_trip_s / 2)], own):
        yield own


@contextmanager
def _process(command: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
                break
            time.sleep(0.05)
        else:
            raise RuntimeError(f"{command[0]} does not listen")
        yield
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


class _Sink(asyncio.Protocol):
    """Accepts everything and offers PIPELINING."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._received = b""
        self._is_message = False
        self._transport.write(b"220 sink\r\n")

    def data_received(self, data: bytes) -> None:
        self._received += data
        answers = b""
        while True:
            end = b"\r\n.\r\n" if self._is_message else b"\r\n"
            line, found, rest = self._received.partition(end)
            if not found:
                break
            self._received = rest
            if self._is_message:
                self._is_message, answers = False, answers + b"250 kept\r\n"
            elif line[:4].upper() == b"EHLO":
                answers += b"250-sink\r\n250-PIPELINING\r\n250 8BITMIME\r\n"
            elif line[:4].upper() == b"DATA":
                self._is_message, answers = True, answers + b"354 go on\r\n"
            else:
                answers += b"250 ok\r\n"
        self._transport.write(answers)


class _Leg(asyncio.Protocol):
    """One direction of the proxy: forwards data after a delay."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self.transport: asyncio.Transport | None = None
        self.other: _Leg | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        asyncio.get_running_loop().call_later(self._delay_s, self._pass, data)

    def connection_lost(self, exc: Exception | None) -> None:
        asyncio.get_running_loop().call_later(self._delay_s, self._end)

    def _end(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()

    def _pass(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self._early.append(data)
        elif not self.other.transport.is_closing():
            self.other.transport.write(b"".join([*self._early, data]))
            self._early.clear()


async def _serve_proxy(own: int, port: int, delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    joining = set()

    def accept() -> _Leg:
        near = _Leg(delay_s)
        far = _Leg(delay_s)
        near.other, far.other = far, near
        task = loop.create_task(loop.create_connection(lambda: far, HOST, port))
        joining.add(task)
        task.add_done_callback(joining.discard)
        return near

    server = await loop.create_server(accept, HOST, own, backlog=1024)
    await server.serve_forever()


async def _serve_sink(own: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Sink, HOST, own, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    match sys.argv[1:]:
        case ["sink", own]:
            uvloop.run(_serve_sink(int(own)))
        case ["proxy", own, port, delay_s]:
            uvloop.run(_serve_proxy(int(own), int(port), float(delay_s)))
