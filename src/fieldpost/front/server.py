"""Central's HTTP server: uvicorn with limits on connections (`http_limits.py`), on an open socket."""

import asyncio
import logging
import socket
from contextlib import suppress
from dataclasses import replace
from typing import cast

import structlog
import uvicorn
from starlette.applications import Starlette

from fieldpost.front.admission import OpenConnection
from fieldpost.front.http_limits import BoundedHttp, LimitedConfig
from fieldpost.front.listener import FrontListener
from fieldpost.front.options import FrontOptions
from fieldpost.front.tls import Certificate
from fieldpost.front.websocket_limits import BoundedWebSocket
from fieldpost.link.messages import FRAME_BYTES_MAX

SPARE_FILES = 128
"""File descriptors for the rest of the process: database, log, connections to mail servers."""
OUTBOUND_FILES = 1536
"""File descriptors for outbound HTTP connections and lookups, as far as the hard limit permits."""
CONNECTIONS_MIN = 16
GRACE_S = 5
"""How long a stopping server waits for requests in progress."""
SWEEP_TICKS = 5
"""Connections are checked for late readers at every fifth tick of uvicorn, twice per second."""
UNSENT_BYTES_MAX = 128 * 1024
"""How many unsent bytes of a connection the kernel may hold; a client that does not read would pin megabytes."""
PING_S = 12.0
PONG_S = 15.0
"""A site that does not answer a ping within 15 s is gone; with the ping interval, central notices within 27 s."""

log = structlog.get_logger()


class CentralServer(uvicorn.Server):
    """Serves until `should_exit` is set. The process handles signals, not the server."""

    def __init__(
        self,
        app: Starlette,
        listening: socket.socket,
        options: FrontOptions | None = None,
        certificate: Certificate | None = None,
    ) -> None:
        # uvicorn logs a warning per invalid request, without a limit; `log_refusal` has one.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._app = app
        self._socket = listening
        host, port = listening.getsockname()[:2]
        scheme = "http" if certificate is None else "https"
        self.url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        allowed = _within_file_limit(options or FrontOptions())
        self.connections_max = allowed.connections_max
        """The maximum number of open connections, within the limits of the system."""
        super().__init__(
            LimitedConfig(
                app,
                allowed,
                http=BoundedHttp,
                ws=BoundedWebSocket,
                ws_max_size=FRAME_BYTES_MAX,
                # uvicorn would trust any proxy on this machine; our own setting names the trusted proxies.
                proxy_headers=False,
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                ws_ping_interval=PING_S,
                ws_ping_timeout=PONG_S,
                # The link compresses messages itself; a compression window per connection would cost memory.
                ws_per_message_deflate=False,
                timeout_graceful_shutdown=GRACE_S,
                lifespan="off",
            )
        )
        self._limited.on_refused = app.state.backend.watch.exposition.connection_refused
        self._limited.problem_at = app.state.problem_at
        self._is_ready = asyncio.Event()
        self._certificate = certificate
        self._listener: FrontListener | None = None
        self._watching: asyncio.Task[None] | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await self._serve(sockets or [self._socket])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        for listening in sockets or []:
            _limit_unsent(listening)
        await super().startup([])
        context = self._certificate.context if self._certificate else None
        self._listener = FrontListener(self._socket, context, self._limited, self._create_protocol)
        self._listener.start()
        self._watching = asyncio.create_task(self._app.state.backend.open_links.run())
        self._is_ready.set()

    async def on_tick(self, counter: int) -> bool:
        if counter % SWEEP_TICKS == 0:
            now = asyncio.get_running_loop().time()
            for connection in self._bounded():
                connection.sweep(now)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Otherwise open event streams of the console would delay the shutdown until the grace time is over.
        self._app.state.backend.change_feed.close()
        if self._watching is not None:
            self._watching.cancel()
        if self._listener is not None:
            await self._listener.close()
        # Nor does the shutdown wait for clients that do not read.
        asyncio.get_running_loop().call_later(GRACE_S / 2, self._abort_blocked)
        await super().shutdown(sockets)

    async def ready(self) -> None:
        await self._is_ready.wait()

    @property
    def _limited(self) -> LimitedConfig:
        return cast(LimitedConfig, self.config)

    def _bounded(self) -> list[BoundedHttp | BoundedWebSocket]:
        return cast(list[BoundedHttp | BoundedWebSocket], list(self.server_state.connections))

    def _create_protocol(self, admitted: OpenConnection | None) -> BoundedHttp:
        protocol = BoundedHttp(self.config, self.server_state, self.lifespan.state)
        protocol.admitted = admitted
        return protocol

    def _abort_blocked(self) -> None:
        for connection in self._bounded():
            if connection.is_blocked:
                connection.abort()


def _limit_unsent(listening: socket.socket) -> None:
    """Bound the unsent bytes that the kernel holds for each accepted connection, where the system can."""
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if option is not None:
        with suppress(OSError):
            listening.setsockopt(socket.IPPROTO_TCP, option, UNSENT_BYTES_MAX)


def _within_file_limit(options: FrontOptions) -> FrontOptions:
    """Reduce the maximum of connections to the limit of open files, so that callers never exhaust the store's share."""
    try:
        import resource
    except ImportError:  # the system has no such limit
        return options
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = options.connections_max + SPARE_FILES
    raised = wanted + OUTBOUND_FILES
    allowed = raised if hard == resource.RLIM_INFINITY else min(raised, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed >= wanted:
        return options
    connections_max = max(CONNECTIONS_MIN, allowed - SPARE_FILES)
    log.warning("connections.limited", connections_max=connections_max, files_max=allowed)
    return replace(options, connections_max=connections_max)
