"""The server that central is reached by: uvicorn, bounded (`wire.py`), on a socket that is already open."""

import asyncio
import socket

import uvicorn
from starlette.types import ASGIApp

from fieldpost.front.options import FrontOptions
from fieldpost.front.wire import WireConfig


class Server(uvicorn.Server):
    """Serves until told to stop (`should_exit`); signals are the process's affair, not the server's."""

    def __init__(self, app: ASGIApp, listening: socket.socket, options: FrontOptions | None = None) -> None:
        self._socket = listening
        host, port = listening.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        super().__init__(
            WireConfig(
                app,
                options or FrontOptions(),
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                ws_ping_interval=20,
                ws_ping_timeout=20,
                timeout_graceful_shutdown=5,
                lifespan="off",
            )
        )
        self._is_ready = asyncio.Event()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await self._serve(sockets or [self._socket])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._is_ready.set()

    async def ready(self) -> None:
        await self._is_ready.wait()
