"""Accepts TLS connections: each socket is admitted and counted before its handshake, which has a deadline.

uvicorn sees a connection only after the handshake, so sockets that never begin one would be outside every limit.
"""

import asyncio
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from fieldpost.core.errors import Unavailable
from fieldpost.front.admission import OpenConnection
from fieldpost.front.http_limits import LimitedConfig
from fieldpost.link.http.accepting import accept_forever

READ_BYTES = 32 * 1024
"""The read buffer of a TLS connection. asyncio allocates and fills 256 KiB for each, so that a few hundred silent peers
took a hundred megabytes; uvloop reserves as much but touches only what is read."""
SHUTDOWN_S = 3600.0
"""A closing TLS connection is ended by the write deadline, which knows whether the peer reads."""


class TlsListener:
    """Accepts connections on an open socket until closed."""

    def __init__(
        self,
        listening: socket.socket,
        context: ssl.SSLContext,
        config: LimitedConfig,
        create_protocol: Callable[[OpenConnection], asyncio.Protocol],
    ) -> None:
        self._socket = listening
        self._context = context
        self._config = config
        self._create_protocol = create_protocol
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        # The loop offers no parameter for it.
        sslproto.SSLProtocol.max_size = READ_BYTES
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
        try:
            admitted = self._config.admission.admit(address[0], partial(_shut, accepted))
        except Unavailable as error:
            # An answer would need the handshake first.
            self._config.log_refusal(error.code, address[:2], asyncio.get_running_loop().time())
            accepted.close()
        else:
            self._spawn(asyncio.create_task(self._shake_hands(accepted, admitted)))

    def _not_accepted(self, error: OSError) -> None:
        self._config.log_refusal(f"accept.{error.errno}", None, asyncio.get_running_loop().time())

    async def _shake_hands(self, accepted: socket.socket, admitted: OpenConnection) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._create_protocol(admitted),
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self._config.options.header_s,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except (OSError, asyncio.CancelledError):
            # A failed, late or evicted handshake; the protocol never saw the connection.
            admitted.release()
            accepted.close()

    def _spawn(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _shut(accepted: socket.socket) -> None:
    with suppress(OSError):
        accepted.shutdown(socket.SHUT_RDWR)
