"""Open WebSockets of sites, closed when their token is revoked or expires.

A frame from the site is checked when it arrives, but a connection may stay silent, and central sends commands on it. So
every open connection is checked when a token of a site has changed, on any node, and every few seconds for tokens that
expire; a control connection also before each message that central sends on it.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect

from fieldpost.central.access.accounts import Accounts
from fieldpost.core.errors import Denied, Unavailable
from fieldpost.front import auth

TOKEN_REVOKED = 1008
"""The WebSocket close code: policy violation."""
INTERVAL_S = 5.0

log = structlog.get_logger()


class OpenLink:
    """One accepted WebSocket of a site."""

    def __init__(self, websocket: WebSocket, accounts: Accounts) -> None:
        self._websocket = websocket
        self._accounts = accounts

    async def check(self) -> None:
        """Close the connection and raise Denied if its token is no longer valid."""
        try:
            await auth.site_node(self._websocket.headers, self._accounts)
        except Denied as error:
            with suppress(WebSocketDisconnect, RuntimeError):
                await self._websocket.close(TOKEN_REVOKED, error.message)
            raise


class OpenLinks:
    """All of this node."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._open: set[OpenLink] = set()

    @contextmanager
    def held(self, websocket: WebSocket) -> Iterator[OpenLink]:
        link = OpenLink(websocket, self._accounts)
        self._open.add(link)
        try:
            yield link
        finally:
            self._open.discard(link)

    async def run(self) -> None:
        """Check the connections until cancelled."""
        while True:
            await self._accounts.site_tokens_changed(INTERVAL_S)
            try:
                await self.sweep()
            except Exception:
                log.exception("open_links.faulted")

    async def sweep(self) -> None:
        """Close the connections whose token is no longer valid. Their lookups share a few statements."""
        for result in await asyncio.gather(*(link.check() for link in self._open), return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, Denied | Unavailable):
                raise result
