"""Control connections to sites: over a WebSocket, or polled by POST."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from starlette.websockets import WebSocketDisconnect

from fieldpost.core.errors import Denied, Unavailable
from fieldpost.core.sites.node import SiteNode
from fieldpost.link.codec import encode
from fieldpost.link.messages import Hello, LinkMessage

SEND_S = 25.0
"""How long sending a message may take; a site that reads nothing for this long is gone."""

SILENCE_S = 30.0
"""A polling site calls every few seconds; after this long without a call it is gone."""
WAITING_MAX = 100
"""How many messages may wait for the next call of a polling site."""


class ControlLink:
    """One control connection over a WebSocket."""

    def __init__(
        self,
        sender: SiteNode,
        send: Callable[[bytes], Awaitable[None]],
        check: Callable[[], Awaitable[None]],
    ) -> None:
        """`check` raises Denied, and closes the connection, if the site's token is no longer valid."""
        self.sender = sender
        self.site = sender.site
        self.hello: Hello | None = None
        """The greeting of the site; None before it."""
        self._send = send
        self._check = check
        self._is_over = False

    async def send(self, message: LinkMessage) -> None:
        """Send a message. Raises Unavailable when the connection is over or the site does not read."""
        if self._is_over:
            raise Unavailable("link.not_connected", f"site {self.site} is not connected")
        try:
            await self._check()
            async with asyncio.timeout(SEND_S):
                await self._send(encode(message))
        except Denied:
            self.end()
            raise Unavailable("link.not_connected", f"the token of site {self.site} is no longer valid") from None
        except TimeoutError:
            self.end()
            raise Unavailable("link.timeout", f"site {self.site} read no message for {SEND_S:g} s") from None
        except (RuntimeError, OSError, WebSocketDisconnect) as error:
            # The server raises these for a connection that has just ended.
            self.end()
            raise Unavailable("link.not_connected", f"site {self.site} is not connected") from error

    def end(self) -> None:
        """Send nothing more on it."""
        self._is_over = True

    @property
    def is_over(self) -> bool:
        return self._is_over


class PolledLink(ControlLink):
    """The same for a site without WebSockets, which polls by POST: messages wait for its next call."""

    def __init__(self, sender: SiteNode) -> None:
        super().__init__(sender, self._keep, self._authenticated)
        self.task: asyncio.Task[None] | None = None
        """Ends the connection when the site stops polling."""
        self._waiting: list[LinkMessage] = []
        self._polled = asyncio.Event()

    async def send(self, message: LinkMessage) -> None:
        if self.is_over or len(self._waiting) >= WAITING_MAX:
            raise Unavailable("link.not_connected", f"site {self.site} is not polling")
        self._waiting.append(message)

    def take(self) -> list[LinkMessage]:
        """The waiting messages, for the answer to the present call."""
        self._polled.set()
        taken, self._waiting = self._waiting, []
        return taken

    async def until_silent(self) -> None:
        """Return when the site has not polled for a while."""
        with suppress(TimeoutError):
            while True:
                self._polled.clear()
                async with asyncio.timeout(SILENCE_S):
                    await self._polled.wait()

    async def _authenticated(self) -> None:
        """Every call of the site is checked on its own."""

    async def _keep(self, data: bytes) -> None:
        raise AssertionError("a polled connection queues its messages")
