"""The common part of the test servers: listening on loopback, and keeping the port while the server is stopped.

A kept port is bound but not listening, so connections are refused as by a server that is down, and no other program,
such as the server of another test, can take it meanwhile.
"""

import asyncio
import os
import socket
import struct
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

from fieldpost.testing.misbehaving import Rules

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def reset_connection(transport: asyncio.WriteTransport) -> None:
    """Close a connection by RST."""
    sock: socket.socket = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    transport.abort()


class LoopbackServer(ABC):
    """A server on loopback; an async context manager, or `start` and `stop` any number of times."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._listener: asyncio.Server | None = None
        self._kept_port = KeptPort()
        self._bugs: list[BaseException] = []
        self._rules: Rules[Any, Any] = Rules()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        await self.stop()
        self._kept_port.give_up()
        # An exception in a test's predicate or check would otherwise look like a server that hung up.
        if self._bugs and error is None:
            raise self._bugs[0]

    def behave(self) -> None:
        """Withdraw all rules."""
        self._rules.withdraw_all()

    @abstractmethod
    async def start(self) -> None:
        """Listen. Raises OSError if the port is in use."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop listening and end every connection. The record stays; `start` may follow."""

    async def _listen(self, make_protocol: Callable[[], asyncio.Protocol], **options: Any) -> None:
        kept = self._kept_port.come_back()
        address = {"host": self.host, "port": self.port} if kept is None else {"sock": kept}
        self._listener = await asyncio.get_running_loop().create_server(make_protocol, **address, **options)
        self.port = self._listener.sockets[0].getsockname()[1]


class KeptPort:
    """The port of one server: `leave` on stop, `come_back` on start, `give_up` at the end."""

    def __init__(self) -> None:
        self._kept: socket.socket | None = None
        self._end: weakref.finalize[..., KeptPort] | None = None

    def leave(self, listener: asyncio.Server) -> None:
        """Stop listening and keep the port bound, if possible."""
        places = [(one.family, one.getsockname()) for one in listener.sockets]
        listener.close()
        # On other systems SO_REUSEADDR shares a port; a host with several addresses is not supported.
        if os.name != "posix" or len(places) != 1:
            return
        family, address = places[0]
        kept = socket.socket(family)
        # Connections of this port may still be closing.
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            kept.bind(address)
        except OSError:
            kept.close()
            return
        self._kept, self._end = kept, weakref.finalize(self, kept.close)

    def come_back(self) -> socket.socket | None:
        """The bound socket to listen on, if the port was kept; the caller owns it."""
        kept, self._kept = self._kept, None
        if self._end is not None:
            self._end.detach()
        return kept

    def give_up(self) -> None:
        """Release the port."""
        kept = self.come_back()
        if kept is not None:
            kept.close()
