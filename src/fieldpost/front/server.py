"""The server that central is reached by: uvicorn, bounded (`wire.py`), on a socket that is already open."""

import asyncio
import socket
from dataclasses import replace

import structlog
import uvicorn
from starlette.applications import Starlette

from fieldpost.front.options import FrontOptions
from fieldpost.front.tls import Certificate
from fieldpost.front.wire import WireConfig

SPARE_FILES = 128
"""What the rest of the process needs: database, log, connections to mail servers."""
CONNECTIONS_MIN = 16
GRACE_S = 5
"""How long a stopping server waits for answers that are under way."""
PING_S = 12.0
PONG_S = 15.0
"""A site that does not answer a ping for so long is gone: noticed within half a minute, with the time between pings."""

log = structlog.get_logger()


class CentralServer(uvicorn.Server):
    """Serves until told to stop (`should_exit`); signals are the process's affair, not the server's."""

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
        """How many connections may be open at once, as the system allows it."""
        super().__init__(
            WireConfig(
                app,
                allowed,
                ssl_context_factory=None if certificate is None else lambda _config, _default: certificate.context,
                # uvicorn would believe any proxy on this machine; whom to believe is said in our own settings.
                proxy_headers=False,
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                ws_ping_interval=PING_S,
                ws_ping_timeout=PONG_S,
                # The link compresses by itself where that pays; windows for each connection would only cost memory.
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
        # Pages that listen would be waited for until the grace time is over.
        self._app.state.backend.change_feed.close()
        await super().shutdown(sockets)

    async def ready(self) -> None:
        await self._is_ready.wait()


def _within_file_limit(options: FrontOptions) -> FrontOptions:
    """The options with as many connections as the process may have files, so that callers never take the store's."""
    try:
        import resource
    except ImportError:  # a system without such a limit
        return options
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = options.connections_max + SPARE_FILES
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed == wanted:
        return options
    connections_max = max(CONNECTIONS_MIN, allowed - SPARE_FILES)
    log.warning("connections.limited", connections_max=connections_max, files_max=allowed)
    return replace(options, connections_max=connections_max)
