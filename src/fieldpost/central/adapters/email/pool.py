"""The connections to mail servers: at most so many at a time, used again while they are warm.

Theory of operation. Connections are counted by server and user name, from before they are made until the socket is
gone, so that the limit holds at every moment. An attempt takes an idle one, else opens one, else waits its turn in the
order of arrival; one that is given back goes straight to whoever waits. An idle one closes after a while. Before an
idle one is used it must still be open and silent; that it dies a moment later is for the attempt to notice.

Which connection an attempt gets changes how soon it is done, never what comes of it.
"""

import asyncio
import math
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field

from fieldpost.central.adapters.email.conversation import SmtpConversation
from fieldpost.central.adapters.email.deadline import AttemptDeadline
from fieldpost.central.adapters.email.opening import Opening
from fieldpost.central.adapters.email.settings import EmailSettings
from fieldpost.clock import Clock
from fieldpost.core.outcome import Held

IDLE_S = 10.0
SHARED_DOT_S = 0.5
"""Over a connection whose last answer took longer nobody speaks meanwhile: he would wait behind a slow answer."""


class Pool:
    """Connections of one adapter."""

    def __init__(self, clock: Clock, idle_s: float = IDLE_S) -> None:
        self._clock = clock
        self._idle_s = idle_s
        self._places: dict[object, _Place] = {}
        self._farewells: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def take(
        self,
        settings: EmailSettings,
        deadline: AttemptDeadline,
        opening: Opening,
        *,
        is_fresh: bool = False,
    ) -> SmtpConversation | Held:
        """A conversation ready for MAIL; with `is_fresh` none that was used before."""
        place = self._places.setdefault(settings.server, _Place())
        if is_fresh:
            self._make_room(place, settings)
        elif (idle := self._warm(place, settings)) is not None:
            return idle
        if place.waiting or place.open_count >= settings.max_connections:
            got = await self._wait(place, settings, deadline, is_fresh)
            if not isinstance(got, bool):
                return got
            if not got:
                return Held(
                    f"all {settings.max_connections} connections to {settings.host} were busy all the time",
                    phase="connect",
                )
        else:
            place.open_count += 1
        return await self._open(place, opening)

    def give_back(self, conversation: SmtpConversation) -> None:
        """It is fit for another attempt."""
        settings = conversation.settings
        place = self._places[settings.server]
        if conversation.is_over or not conversation.wire.is_quiet:
            conversation.hang_up()
        elif self._is_closed or place.open_count > settings.max_connections:
            self.dismiss(conversation)
        elif not self._pass_on(place, conversation):
            conversation.idle_since = self._clock.monotonic()
            place.idle.append(conversation)
            if place.reaper is None:
                place.reaper = asyncio.get_running_loop().call_later(self._idle_s, self._reap, settings.server)

    def hand_over(self, conversation: SmtpConversation) -> bool:
        """While its message waits for an answer: whether somebody else speaks over it already."""
        if conversation.dot_s is None or conversation.dot_s > SHARED_DOT_S or conversation.transcript is not None:
            return False
        place = self._places[conversation.settings.server]
        return place.open_count <= conversation.settings.max_connections and self._pass_on(place, conversation)

    def dismiss(self, conversation: SmtpConversation) -> None:
        """QUIT in a task of its own: whether a server is polite at the end must neither delay nor change an outcome."""
        if conversation.is_over:
            conversation.hang_up()
        else:
            self.run_aside(conversation.quit())

    def run_aside(self, farewell: Coroutine[None, None, None]) -> None:
        """Have this done by the time of `close`."""
        task = asyncio.get_running_loop().create_task(farewell)
        self._farewells.add(task)
        task.add_done_callback(self._farewells.discard)

    async def close(self) -> None:
        """Take leave of all that lie idle; those in use follow when they are given back."""
        self._is_closed = True
        for place in self._places.values():
            while place.idle:
                self.dismiss(place.idle.pop())
            if place.reaper is not None:
                place.reaper.cancel()
                place.reaper = None
        while self._farewells:
            await asyncio.gather(*self._farewells, return_exceptions=True)
        self._is_closed = False

    # -- inside --------------------------------------------------------------------------------------------------------

    def _warm(self, place: "_Place", settings: EmailSettings) -> SmtpConversation | None:
        """The idle connection that was used last, if it is alive and logged in as these settings want."""
        while place.idle:
            conversation = place.idle.pop()
            if not conversation.wire.is_quiet:
                conversation.hang_up()
            elif conversation.settings.login != settings.login:
                self.dismiss(conversation)
            else:
                return _again(conversation)
        return None

    def _make_room(self, place: "_Place", settings: EmailSettings) -> None:
        if place.idle and place.open_count >= settings.max_connections:
            self.dismiss(place.idle.popleft())

    async def _open(self, place: "_Place", opening: Opening) -> SmtpConversation | Held:
        conversation = opening.make()
        conversation.wire.on_lost = lambda: self._gone(place)
        try:
            held = await opening.open(conversation)
        except BaseException:
            self._drop(place, conversation)
            raise
        if held is None:
            return conversation
        if conversation.is_over or not conversation.wire.is_made:
            self._drop(place, conversation)
        else:
            self.dismiss(conversation)
        return held

    def _drop(self, place: "_Place", conversation: SmtpConversation) -> None:
        if conversation.wire.is_made:
            conversation.hang_up()
        else:
            conversation.wire.on_lost = None
            self._gone(place)

    async def _wait(
        self, place: "_Place", settings: EmailSettings, deadline: AttemptDeadline, is_fresh: bool
    ) -> SmtpConversation | bool:
        """A conversation, or True for the right to open one, or False when the time is used up."""
        waiter = _Waiter(settings, is_fresh, asyncio.get_running_loop().create_future())
        place.waiting.append(waiter)
        # Who gets a connection with too little time left to hear the answer to his message would never know of it.
        left_s = deadline.at_most(math.inf)
        try:
            async with asyncio.timeout(left_s - min(settings.data_timeout_s, left_s / 2)):
                return await waiter.got or True
        except (TimeoutError, asyncio.CancelledError) as error:
            if waiter in place.waiting:
                place.waiting.remove(waiter)
            elif waiter.got.done() and not waiter.got.cancelled():
                self._return(place, waiter.got.result())
            if isinstance(error, TimeoutError):
                return False
            raise

    def _return(self, place: "_Place", got: SmtpConversation | None) -> None:
        """What was given to somebody who is gone."""
        if got is None:
            self._gone(place)
        elif got.dot is not None:
            # Its message still waits for an answer, and nobody speaks over it after all: it ends with that.
            got.is_doomed = True
        else:
            self.give_back(got)

    def _pass_on(self, place: "_Place", conversation: SmtpConversation) -> bool:
        for waiter in place.waiting:
            if not waiter.is_fresh and waiter.settings.login == conversation.settings.login:
                place.waiting.remove(waiter)
                if waiter.got.done():
                    return self._pass_on(place, conversation)
                waiter.got.set_result(_again(conversation))
                return True
        return False

    def _gone(self, place: "_Place") -> None:
        """One connection less: the first in the queue may open another."""
        place.open_count -= 1
        while place.waiting and place.open_count < place.waiting[0].settings.max_connections:
            waiter = place.waiting.popleft()
            if not waiter.got.done():
                place.open_count += 1
                waiter.got.set_result(None)

    def _reap(self, server: object) -> None:
        place = self._places[server]
        place.reaper = None
        now = self._clock.monotonic()
        # Those used last stand at the end, so the ones that lie longest stand first.
        while place.idle and now - place.idle[0].idle_since >= self._idle_s * 0.99:
            self.dismiss(place.idle.popleft())
        if place.idle:
            wait_s = place.idle[0].idle_since + self._idle_s - now
            place.reaper = asyncio.get_running_loop().call_later(wait_s, self._reap, server)


@dataclass(slots=True, eq=False)
class _Waiter:
    settings: EmailSettings
    is_fresh: bool
    got: "asyncio.Future[SmtpConversation | None]"


@dataclass(slots=True)
class _Place:
    """The connections to one server as one user."""

    open_count: int = 0
    idle: deque[SmtpConversation] = field(default_factory=deque)
    waiting: deque[_Waiter] = field(default_factory=deque)
    reaper: asyncio.TimerHandle | None = None


def _again(conversation: SmtpConversation) -> SmtpConversation:
    conversation.is_reused = True
    return conversation
