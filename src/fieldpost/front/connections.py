"""The control connections that this node holds, by site.

A site may have more than one for a while: its old one is not yet known to be dead, or it runs a pair. The newest is the
one that is spoken to; when it ends, the one before it is.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from starlette.websockets import WebSocketDisconnect

from fieldpost.core.errors import Unavailable
from fieldpost.link.codec import encode
from fieldpost.link.messages import Hello, LinkMessage

SEND_S = 25.0
"""How long a message may take to be handed over; a site that takes none for so long is not there."""

SILENCE_S = 30.0
"""A site that asks by POST does so every few seconds; one that has not for so long is gone."""
WAITING_MAX = 100
"""So many messages wait for a site's next question at most."""


class ControlLink:
    """One control connection, seen from central."""

    def __init__(self, site: str, send: Callable[[bytes], Awaitable[None]]) -> None:
        self.site = site
        self.hello: Hello | None = None
        """What the site said of itself; None until it has."""
        self._send = send
        self._is_over = False

    async def send(self, message: LinkMessage) -> None:
        """Say this to the site. Raises Unavailable when the connection is over or the site takes nothing."""
        if self._is_over:
            raise Unavailable("link.not_connected", f"the site {self.site} is not connected now")
        try:
            async with asyncio.timeout(SEND_S):
                await self._send(encode(message))
        except TimeoutError:
            self.end()
            raise Unavailable("link.timeout", f"the site {self.site} took no message for {SEND_S:g} s") from None
        except (RuntimeError, OSError, WebSocketDisconnect) as error:
            # What the server says of a connection that ended in this moment.
            self.end()
            raise Unavailable("link.not_connected", f"the site {self.site} is not connected now") from error

    def end(self) -> None:
        """Nothing more can be said on it."""
        self._is_over = True

    @property
    def is_over(self) -> bool:
        return self._is_over


class PolledLink(ControlLink):
    """The same for a site that can open no WebSocket and asks by POST: what is said waits until it asks again."""

    def __init__(self, site: str) -> None:
        super().__init__(site, self._keep)
        self.task: asyncio.Task[None] | None = None
        """What notices that the site asks no more."""
        self._waiting: list[LinkMessage] = []
        self._asked = asyncio.Event()

    async def send(self, message: LinkMessage) -> None:
        if self.is_over or len(self._waiting) >= WAITING_MAX:
            raise Unavailable("link.not_connected", f"the site {self.site} does not ask now")
        self._waiting.append(message)

    def take(self) -> list[LinkMessage]:
        """What waits, for the site that asks just now."""
        self._asked.set()
        taken, self._waiting = self._waiting, []
        return taken

    async def until_silent(self) -> None:
        """Return when the site has not asked for a while."""
        with suppress(TimeoutError):
            while True:
                self._asked.clear()
                async with asyncio.timeout(SILENCE_S):
                    await self._asked.wait()

    async def _keep(self, data: bytes) -> None:
        raise AssertionError("it has no line of its own")
