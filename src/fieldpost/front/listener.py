"""Accepts connections, with or without TLS, and pauses while the process has no free file descriptor.

The server of the event loop would log a traceback per try and pending connection. Over TLS each socket is admitted and
counted before its handshake, which has a deadline: uvicorn sees a connection only after the handshake, so sockets that
never begin one would be outside every limit.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from fieldpost.core.errors import Unavailable
from fieldpost.front.admission import OpenConnection
from fieldpost.front.http_limits import LimitedConfig
from fieldpost.front.tls_transport import TlsTransport
from fieldpost.link.http.accepting import accept_forever

READ_BYTES = 16 * 1024
"""The read buffer that all TLS connections share."""


class FrontListener:
    """Accepts connections on an open socket until closed."""

    def __init__(
        self,
        listening: socket.socket,
        context: ssl.SSLContext | None,
        config: LimitedConfig,
        create_protocol: Callable[[OpenConnection | None], asyncio.Protocol],
    ) -> None:
        self._socket = listening
        self._context = context
        self._config = config
        self._create_protocol = create_protocol
        self._received = memoryview(bytearray(READ_BYTES))
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._socket.setblocking(False)
        self._socket.listen(self._config.backlog)
        self._spawn(asyncio.create_task(accept_forever(self._socket, self._admit, self._not_accepted)))

    async def close(self) -> None:
        """Accept no more connections and end handshakes in progress."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _admit(self, accepted: socket.socket, address: Any) -> None:
        if self._context is None:
            # Admitted when it is made: a client that is turned away gets an answer.
            self._spawn(asyncio.create_task(self._connect(accepted)))
            return
        try:
            admitted = self._config.admission.admit(address[0], partial(_shut, accepted))
        except Unavailable as error:
            # An answer would need the handshake first.
            self._config.log_refusal(error.code, address[:2], asyncio.get_running_loop().time())
            accepted.close()
        else:
            tls = TlsTransport(self._context, partial(self._create_protocol, admitted), self._received)
            self._spawn(asyncio.create_task(self._shake_hands(accepted, admitted, tls)))

    def _not_accepted(self, error: OSError) -> None:
        self._config.log_refusal(f"accept.{error.errno}", None, asyncio.get_running_loop().time())

    async def _connect(self, accepted: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: self._create_protocol(None), accepted)
        except OSError:
            accepted.close()

    async def _shake_hands(self, accepted: socket.socket, admitted: OpenConnection, tls: TlsTransport) -> None:
        is_established = False
        try:
            async with asyncio.timeout(self._config.options.header_s):
                await asyncio.get_running_loop().connect_accepted_socket(lambda: tls, accepted)
                is_established = await tls.established()
        except (OSError, asyncio.CancelledError):
            tls.abort()
        if not is_established:
            # A failed, late or evicted handshake; the protocol never saw the connection.
            admitted.release()
            accepted.close()

    def _spawn(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _shut(accepted: socket.socket) -> None:
    with suppress(OSError):
        accepted.shutdown(socket.SHUT_RDWR)
