"""Limits on the connections of the local API, which every user of the machine can open on the port.

A connection *works* from the moment its request has passed the access check until its answer is ready; otherwise it
*waits*: for a request, for the rest of its head, or for a client that does not read its answer. A waiting connection is
closed after `[local] timeout_s`. When all connections are in use, the one that has waited longest makes room; if all
work, a new one gets 503. So connections without the token can never keep a script out.
"""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import structlog
from aiohttp import web

from fieldpost.core.errors import Unavailable
from fieldpost.link.http.accepting import accept_forever
from fieldpost.link.http.problem import MEDIA_TYPE, problem_of
from fieldpost.site.config.options import LocalOptions

SWEEP_S = 0.5
LOG_EVERY_S = 10.0
SPARE_FILES = 96
"""File descriptors for the rest of the agent: buffer, log, central, external systems and databases."""
LISTENERS_MAX = 2
CONNECTIONS_MIN = 4

_log = structlog.stdlib.get_logger("fieldpost.site")


class LocalConnections:
    """The open connections of one listener, each working or waiting since a time."""

    def __init__(self, options: LocalOptions) -> None:
        self._timeout_s = options.timeout_s
        self._connections_max = within_file_limit(options.connections_max)
        self._server: web.Server | None = None
        self._waiting: dict[web.RequestHandler, float] = {}
        self._logged_at: dict[str, float] = {}

    async def run(self, listening: socket.socket, server: web.Server) -> None:
        """Accept and limit connections until cancelled; `server` creates their protocols."""
        self._server = server
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sweep())
            group.create_task(accept_forever(listening, self._admit, self._not_accepted))

    @contextmanager
    def working(self, request: web.Request) -> Iterator[None]:
        """The request of this connection is allowed and being processed."""
        self._waiting.pop(request.protocol, None)
        try:
            yield
        finally:
            if request.protocol.transport is not None:
                self._waiting[request.protocol] = _now()

    async def _admit(self, accepted: socket.socket, _address: Any) -> None:
        server = self._server
        assert server is not None
        open_count = sum(one.transport is not None for one in server.connections)
        if open_count >= self._connections_max and not self._make_room():
            self._log_refusal("local.busy")
            _refuse(accepted, Unavailable("local.busy", "the agent has reached its maximum number of connections"))
            return
        protocol = server()
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, accepted)
        except OSError:
            accepted.close()
        else:
            self._waiting[protocol] = _now()

    def _make_room(self) -> bool:
        """Close the connection that has waited longest; False if all are working."""
        self._forget_closed()
        longest = next(iter(self._waiting), None)
        if longest is None:
            return False
        self._abort(longest)
        return True

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self._forget_closed()
            for connection, since in list(self._waiting.items()):
                if _now() - since < self._timeout_s:
                    break
                self._abort(connection)

    def _forget_closed(self) -> None:
        for connection in [one for one in self._waiting if one.transport is None]:
            del self._waiting[connection]

    def _abort(self, connection: web.RequestHandler) -> None:
        del self._waiting[connection]
        if connection.transport is not None:
            connection.transport.abort()

    def _not_accepted(self, error: OSError) -> None:
        self._log_refusal("local.not_accepted", error.strerror or str(error))

    def _log_refusal(self, event: str, error: str | None = None) -> None:
        """Log an event at most once in 10 s."""
        if _now() - self._logged_at.get(event, -LOG_EVERY_S) >= LOG_EVERY_S:
            self._logged_at[event] = _now()
            _log.warning("local.refused", code=event, error=error, connections_max=self._connections_max)


def within_file_limit(connections_max: int) -> int:
    """Reduce the maximum to the limit of open files, so that callers never take the descriptors of the buffer."""
    try:
        import resource
    except ImportError:  # the system has no such limit
        return connections_max
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return connections_max
    return max(CONNECTIONS_MIN, min(connections_max, (soft - SPARE_FILES) // LISTENERS_MAX))


def _refuse(accepted: socket.socket, error: Unavailable) -> None:
    """Answer without a protocol, as far as the socket takes it at once, and close."""
    body = msgspec.json.encode(problem_of(error))
    head = f"HTTP/1.1 503 Service Unavailable\r\nContent-Type: {MEDIA_TYPE}\r\nContent-Length: {len(body)}\r\n"
    with accepted:
        try:
            accepted.send(f"{head}Cache-Control: no-store\r\nConnection: close\r\n\r\n".encode() + body)
        except OSError:
            return


def _now() -> float:
    return asyncio.get_running_loop().time()
