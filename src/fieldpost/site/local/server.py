"""Serves the local API while the agent runs: on a Unix socket, and on a port of 127.0.0.1 if one is configured.

Forwarding does not depend on it: if an address cannot be bound, the server logs a warning once and retries.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog
from aiohttp import web

from fieldpost.clock import Clock
from fieldpost.core.errors import ConfigError
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.config.folder import Folder
from fieldpost.site.forwarding.forwarder import ForwardHealth
from fieldpost.site.local.guard import BODY_BYTES_MAX, TIMEOUT_S, ensure_token, guard
from fieldpost.site.local.handlers import Handlers
from fieldpost.site.local.listener import LocalConnections
from fieldpost.site.local.routes import ROUTES, bound, document
from fieldpost.site.pair.node import PairNodeTask
from fieldpost.site.site import Site

SOCKET_FILE = "agent.sock"
HOST = "127.0.0.1"
BACKLOG = 128
AGAIN_S = 10.0
GRACE_S = 5.0

_log = structlog.stdlib.get_logger("fieldpost.site")


class LocalApi:
    """The server of the local API, one of the agent's tasks."""

    def __init__(
        self,
        folder: Folder,
        buffer: Buffer,
        clock: Clock,
        health: Callable[[], ForwardHealth],
        pair: PairNodeTask | None = None,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._site = Site(folder, clock)
        self._handlers = Handlers(folder, self._site, buffer, health, pair)
        self._runners: list[web.AppRunner] = []
        self._addresses: list[str] = []

    async def run(self, stopping: asyncio.Event) -> None:
        """Serve until `stopping` is set; requests in progress may finish."""
        opening = [asyncio.create_task(self._open(bind)) for bind, is_wanted in self._listeners() if is_wanted]
        try:
            await stopping.wait()
        finally:
            for task in opening:
                task.cancel()
            await asyncio.gather(*opening, return_exceptions=True)
            for runner in self._runners:
                await runner.cleanup()
            self._runners.clear()
            self._addresses.clear()

    async def close(self) -> None:
        """Remove the socket and end the worker threads."""
        with suppress(FileNotFoundError):
            (self._folder.path / SOCKET_FILE).unlink()
        self._handlers.close()
        self._site.close()

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses that are being served."""
        return tuple(self._addresses)

    def _listeners(self) -> "list[tuple[Bind, bool]]":
        options = self._folder.local
        return [
            (self._bind_socket, options.socket and hasattr(socket, "AF_UNIX")),
            (self._bind_port, options.port != 0),
        ]

    async def _open(self, bind: "Bind") -> None:
        """Serve one listener until cancelled; retry until it can be opened."""
        is_logged = False
        while True:
            try:
                token = ensure_token(self._folder.path)
                bound, address = bind()
                connections = LocalConnections(self._folder.local)
                runner = web.AppRunner(
                    self._application(token, connections, is_port=bound.family == socket.AF_INET),
                    access_log=None,
                    shutdown_timeout=GRACE_S,
                    handle_signals=False,
                )
                await runner.setup()
                self._runners.append(runner)
                bound.listen(BACKLOG)
            except (OSError, ConfigError) as error:
                if not is_logged:
                    _log.warning("local.not_served", error=str(error))
                is_logged = True
                await self._clock.sleep(AGAIN_S)
            else:
                self._addresses.append(address)
                _log.info("local.served", address=address)
                assert runner.server is not None
                with bound:
                    await connections.run(bound, runner.server)

    def _bind_socket(self) -> tuple[socket.socket, str]:
        path = self._folder.path / SOCKET_FILE
        # Left by an agent that was killed. Nobody listens there: this agent holds the lock of the folder.
        path.unlink(missing_ok=True)
        bound = socket.socket(socket.AF_UNIX)
        # Binding creates the file, so the mode must be set beforehand.
        before = os.umask(0o177)
        try:
            bound.bind(_short(path))
        except OSError as error:
            bound.close()
            raise OSError(f"{path}: {error}") from None
        finally:
            os.umask(before)
        bound.setblocking(False)
        return bound, str(path)

    def _bind_port(self) -> tuple[socket.socket, str]:
        bound = socket.socket(socket.AF_INET)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((HOST, self._folder.local.port))
        except OSError as error:
            bound.close()
            raise OSError(f"port {self._folder.local.port} of {HOST}: {error}") from None
        bound.setblocking(False)
        return bound, f"http://{HOST}:{self._folder.local.port}"

    def _application(self, token: str, connections: LocalConnections, *, is_port: bool) -> web.Application:
        guarded = guard(token, connections, is_port=is_port)
        application = web.Application(middlewares=[guarded], client_max_size=BODY_BYTES_MAX)
        application[TIMEOUT_S] = self._folder.local.timeout_s
        for route in ROUTES:
            application.router.add_route(route.method, route.path, bound(route, self._handlers))
        content = msgspec.json.encode(document())

        async def describe(_request: web.Request) -> web.Response:
            return web.Response(body=content, content_type="application/json")

        application.router.add_get("/openapi.json", describe)
        return application


Bind = Callable[[], tuple[socket.socket, str]]


def _short(path: Path) -> str:
    """The shorter of the absolute and the relative path: a socket address holds about 100 bytes."""
    relative = os.path.relpath(path)
    return min(str(path), relative, key=len)
