"""The pool of connections to mail servers: bounded, with reuse of idle connections.

Theory of operation. Connections are counted per server and user name, from before they are opened until the socket is
closed, so that the limit always holds. An attempt takes an idle connection, else opens one, else waits in order of
arrival; a connection that is given back goes straight to the first waiter. Idle connections close after `idle_s`. An
idle connection is reused only if it is open and the server has sent nothing; if it dies right after, the attempt
notices.

The choice of connection affects the duration of an attempt, never its outcome.
"""

import asyncio
import math
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field

from fieldpost.central.adapters.email.conversation import AttemptDeadline, SmtpConversation
from fieldpost.central.adapters.email.opening import Opening
from fieldpost.central.adapters.email.settings import EmailSettings
from fieldpost.clock import Clock
from fieldpost.core.delivery.outcome import Held
from fieldpost.core.quantities import plural

IDLE_S = 10.0
SHARED_DOT_S = 0.5
"""A connection whose last dot reply took longer is not shared: the next attempt would wait behind a slow reply."""


class Pool:
    """The connections of one adapter."""

    def __init__(self, clock: Clock, idle_s: float = IDLE_S) -> None:
        self._clock = clock
        self._idle_s = idle_s
        self._servers: dict[object, _Server] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def take(
        self,
        settings: EmailSettings,
        deadline: AttemptDeadline,
        opening: Opening,
        *,
        is_fresh: bool = False,
    ) -> SmtpConversation | Held:
        """A conversation ready for MAIL; with `is_fresh` on a new connection."""
        server = self._servers.setdefault(settings.server, _Server())
        if is_fresh:
            if server.idle and server.open_count >= settings.max_connections:
                self.dismiss(server.idle.popleft())
        elif (idle := self._warm(server, settings)) is not None:
            return idle
        if server.waiting or server.open_count >= settings.max_connections:
            got = await self._wait(server, settings, deadline, is_fresh)
            if not isinstance(got, bool):
                return got
            if not got:
                return Held(
                    f"the maximum of {plural(settings.max_connections, 'connection')} to {settings.host} is in use",
                    phase="connect",
                )
        else:
            server.open_count += 1
        return await self._open(server, opening)

    def give_back(self, conversation: SmtpConversation) -> None:
        """Return a conversation that is ready for another attempt."""
        settings = conversation.settings
        server = self._servers[settings.server]
        if conversation.is_over or not conversation.wire.is_quiet:
            conversation.hang_up()
        elif self._is_closed or server.open_count > settings.max_connections:
            self.dismiss(conversation)
        elif not self._pass_on(server, conversation):
            conversation.idle_since = self._clock.monotonic()
            server.idle.append(conversation)
            if server.reaper is None:
                server.reaper = asyncio.get_running_loop().call_later(self._idle_s, self._reap, settings.server)

    def hand_over(self, conversation: SmtpConversation) -> bool:
        """Pass a conversation on while its message waits for the reply; returns whether a waiter took it."""
        if conversation.dot_s is None or conversation.dot_s > SHARED_DOT_S or conversation.transcript is not None:
            return False
        server = self._servers[conversation.settings.server]
        return server.open_count <= conversation.settings.max_connections and self._pass_on(server, conversation)

    def dismiss(self, conversation: SmtpConversation) -> None:
        """Send QUIT in a separate task, so that it neither delays nor changes an outcome."""
        if conversation.is_over:
            conversation.hang_up()
        else:
            self.run_in_background(conversation.quit())

    def run_in_background(self, work: Coroutine[None, None, None]) -> None:
        """Run this in the background; `close` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close(self) -> None:
        """Close idle connections; those in use close when they are given back."""
        self._is_closed = True
        for server in self._servers.values():
            while server.idle:
                self.dismiss(server.idle.pop())
            if server.reaper is not None:
                server.reaper.cancel()
                server.reaper = None
        while self._background:
            await asyncio.gather(*self._background, return_exceptions=True)
        self._is_closed = False

    # -- inside --------------------------------------------------------------------------------------------------------

    def _warm(self, server: "_Server", settings: EmailSettings) -> SmtpConversation | None:
        """The most recently used idle connection that is alive and has the same login."""
        while server.idle:
            conversation = server.idle.pop()
            if not conversation.wire.is_quiet:
                conversation.hang_up()
            elif conversation.settings.login != settings.login:
                self.dismiss(conversation)
            else:
                return _again(conversation)
        return None

    async def _open(self, server: "_Server", opening: Opening) -> SmtpConversation | Held:
        conversation = opening.make()
        conversation.wire.on_lost = lambda: self._gone(server)
        try:
            held = await opening.open(conversation)
        except BaseException:
            self._drop(server, conversation)
            raise
        if held is None:
            return conversation
        if conversation.is_over or not conversation.wire.is_made:
            self._drop(server, conversation)
        else:
            self.dismiss(conversation)
        return held

    def _drop(self, server: "_Server", conversation: SmtpConversation) -> None:
        if conversation.wire.is_made:
            conversation.hang_up()
        else:
            conversation.wire.on_lost = None
            self._gone(server)

    async def _wait(
        self, server: "_Server", settings: EmailSettings, deadline: AttemptDeadline, is_fresh: bool
    ) -> SmtpConversation | bool:
        """A conversation, or True for permission to open one, or False on timeout."""
        waiter = _Waiter(settings, is_fresh, asyncio.get_running_loop().create_future())
        server.waiting.append(waiter)
        # Leave enough time to wait for the reply to the message; otherwise the delivery would be uncertain.
        left_s = deadline.at_most(math.inf)
        try:
            async with asyncio.timeout(left_s - min(settings.data_timeout_s, left_s / 2)):
                return await waiter.got or True
        except (TimeoutError, asyncio.CancelledError) as error:
            if waiter in server.waiting:
                server.waiting.remove(waiter)
            elif waiter.got.done() and not waiter.got.cancelled():
                self._return(server, waiter.got.result())
            if isinstance(error, TimeoutError):
                return False
            raise

    def _return(self, server: "_Server", got: SmtpConversation | None) -> None:
        """Take back a grant whose waiter is gone."""
        if got is None:
            self._gone(server)
        elif got.dot is not None:
            # Its message still waits for the reply, and no attempt uses it after that: close it then.
            got.is_doomed = True
        else:
            self.give_back(got)

    def _pass_on(self, server: "_Server", conversation: SmtpConversation) -> bool:
        for waiter in server.waiting:
            if not waiter.is_fresh and waiter.settings.login == conversation.settings.login:
                server.waiting.remove(waiter)
                if waiter.got.done():
                    return self._pass_on(server, conversation)
                waiter.got.set_result(_again(conversation))
                return True
        return False

    def _gone(self, server: "_Server") -> None:
        """A connection has closed: the first waiter may open another."""
        server.open_count -= 1
        while server.waiting and server.open_count < server.waiting[0].settings.max_connections:
            waiter = server.waiting.popleft()
            if not waiter.got.done():
                server.open_count += 1
                waiter.got.set_result(None)

    def _reap(self, key: object) -> None:
        server = self._servers[key]
        server.reaper = None
        now = self._clock.monotonic()
        # The longest idle connections are first.
        while server.idle and now - server.idle[0].idle_since >= self._idle_s * 0.99:
            self.dismiss(server.idle.popleft())
        if server.idle:
            wait_s = server.idle[0].idle_since + self._idle_s - now
            server.reaper = asyncio.get_running_loop().call_later(wait_s, self._reap, key)


@dataclass(slots=True, eq=False)
class _Waiter:
    settings: EmailSettings
    is_fresh: bool
    got: "asyncio.Future[SmtpConversation | None]"


@dataclass(slots=True)
class _Server:
    """The connections to one server as one user."""

    open_count: int = 0
    idle: deque[SmtpConversation] = field(default_factory=deque)
    waiting: deque[_Waiter] = field(default_factory=deque)
    reaper: asyncio.TimerHandle | None = None


def _again(conversation: SmtpConversation) -> SmtpConversation:
    conversation.is_reused = True
    return conversation
