"""Central's HTTP server: uvicorn with limits on connections (`http_limits.py`), on an open socket."""

import asyncio
import socket
from dataclasses import replace

import structlog
import uvicorn
from starlette.applications import Starlette

from fieldpost.front.http_limits import BoundedHttp, LimitedConfig
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
                ssl_context_factory=None if certificate is None else lambda _config, _default: certificate.context,
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
        self._is_ready = asyncio.Event()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await self._serve(sockets or [self._socket])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._is_ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Otherwise open event streams of the console would delay the shutdown until the grace time is over.
        self._app.state.backend.change_feed.close()
        await super().shutdown(sockets)

    async def ready(self) -> None:
        await self._is_ready.wait()


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
