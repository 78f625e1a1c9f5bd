"""This node of a pair, as a task of the agent: leadership, connection to the other node, and care of its copy.

Theory of operation. Three loops run next to each other. One keeps the leadership: it asks central for an epoch or a
renewal, takes an epoch where the rules allow it, and records each switch. One keeps the connection: node 0 listens and
node 1 connects. One takes care of the copy: it takes over notifications of a silent node, prunes what the other node
has, and compares digests.

Other tasks of the agent ask `may_execute` before each piece of work. It is true for a single site, and stays true from
the moment at which the other node has left the pair.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import structlog

from fieldpost.clock import Clock
from fieldpost.core.errors import Conflict, FieldpostError, Unavailable
from fieldpost.core.pair.leadership import SILENCE_S, TakeoverPolicy
from fieldpost.core.sites.site_event import SiteEventKind
from fieldpost.core.times import to_text
from fieldpost.link.messages import EpochAnswer, EpochCause, LinkMessage, PairHealth
from fieldpost.link.pair_messages import PairHandover, PairSwitch
from fieldpost.link.pair_rows import StreamPosition
from fieldpost.site.buffer import event_log
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.pair import pair_state, replication
from fieldpost.site.buffer.pair.pair_state import LastSwitch, TakenEpoch
from fieldpost.site.config.folder import Folder
from fieldpost.site.pair.central_lease import CentralLease
from fieldpost.site.pair.connecting import dial, listen
from fieldpost.site.pair.lag import LagClock, missing_numbers
from fieldpost.site.pair.leadership import Leadership
from fieldpost.site.pair.pair_files import PairFiles
from fieldpost.site.pair.pair_status import ComparedRows
from fieldpost.site.pair.pairing import become_single
from fieldpost.site.pair.session import PairSession
from fieldpost.site.pair.settings_digest import settings_digests

TICK_S = 0.25
CARE_EVERY_S = 5.0
CHECK_EVERY_S = 180.0
"""Between two comparisons of all rows."""
COPIES_MAX = 500
"""How many notifications of a silent node are taken over in one transaction: scripts wait for it."""
COPIES_PAUSE_S = 0.02
HANDOVER_S = 30.0
"""How long a planned switch waits for work in flight, and for the copy."""
COMPARE_S = 90.0
"""How long a comparison on demand may take."""
INVITED_S = 3.0
"""How long an invited node waits for central before it takes the epoch."""

_log = structlog.stdlib.get_logger("fieldpost.site")


class PairNodeTask:
    """The pair in one agent."""

    def __init__(
        self,
        folder: Folder,
        buffer: Buffer,
        clock: Clock,
        run: int,
        send: Callable[[LinkMessage], Awaitable[None]],
        finish: Callable[[float], Awaitable[None]],
    ) -> None:
        """`run` is a random number. `send` reaches central. `finish` ends or gives back the calls in flight."""
        self._folder = folder
        self._files = PairFiles(folder.path)
        self._buffer = buffer
        self._clock = clock
        self._finish = finish
        self._policy = TakeoverPolicy(folder.pair.policy)
        self._ensure_state()
        self._leadership = Leadership(buffer, clock.monotonic, run, self._policy)
        self._lease = CentralLease(self._leadership, buffer, send, clock.monotonic)
        self._session: PairSession | None = None
        self._digests = settings_digests(folder, self._files.shared_incarnation())
        self._lag = LagClock()
        self._lag_s = 0.0
        self._is_paused = False
        self._is_over = False
        self._invited_at: float | None = None
        self._why = ""
        self._seen = self._role
        self._observing = threading.Lock()
        self._checked_at = clock.monotonic()
        self._switching: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.switched: Callable[[], None] = lambda: None
        """Called after each switch."""

    def may_execute(self) -> bool:
        """Whether this node retries and reports calls now."""
        return self._is_over or (not self._is_paused and self._leadership.grounds is not None)

    @property
    def is_over(self) -> bool:
        """Whether the other node has left: this is a single site."""
        return self._is_over

    @property
    def leadership(self) -> Leadership:
        return self._leadership

    def hear_central(self, answer: EpochAnswer) -> None:
        """Process central's answer to an epoch request; blocks on the buffer's file."""
        if not self._is_over:
            self._lease.hear(answer)

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until `stopping` is set."""
        self._loop = asyncio.get_running_loop()
        connect = listen if self._leadership.node.node == 0 else dial
        link = connect(self._folder, self._begin, lambda: self._is_over, self._clock)
        tasks = [asyncio.create_task(one) for one in (self._lead(), link, self._care())]
        try:
            await stopping.wait()
        finally:
            if self._switching is not None:
                tasks.append(self._switching)
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Exception):
                    _log.error("pair.crashed", error=repr(result))

    async def close(self) -> None:
        """`run` closes the connection."""

    # --- leadership

    async def _lead(self) -> None:
        while not self._is_over:
            try:
                await asyncio.to_thread(self._take_if_due)
                await self._lease.sweep()
                await asyncio.to_thread(self._observe)
            except FieldpostError as error:
                _log.warning("pair.put_off", code=error.code, error=error.message)
            await self._clock.sleep(TICK_S)

    def _take_if_due(self) -> None:
        node = self._leadership.node
        if not node.is_invited:
            self._invited_at = None
        elif self._invited_at is None:
            self._invited_at = self._clock.monotonic()
        elif self._clock.monotonic() - self._invited_at >= INVITED_S:
            # Central cannot be reached, and the other node has stopped for good.
            self._take("handed_over")
            return
        is_silent_only = self._clock.monotonic() - max(node.heard_at, node.central_at) < 600
        if self._leadership.take_if_due():
            self._took("silence" if is_silent_only else "cut_off", None)

    def _take(self, cause: EpochCause, reason: str | None = None) -> None:
        self._leadership.take()
        self._took(cause, reason)

    def _took(self, cause: EpochCause, reason: str | None) -> None:
        taken = TakenEpoch(self._leadership.node.held, to_text(self._clock.now()), cause, reason)
        self._buffer.write(pair_state.report_taken, taken)
        self._why = f"taken without central: {reason or _CAUSES[cause]}"
        self._lease.took()

    @property
    def _role(self) -> tuple[bool, int]:
        node = self._leadership.node
        return node.is_leading, node.held

    def _observe(self) -> None:
        """Record a switch, and the lag. A switch on demand does so at once, beside the loop."""
        with self._observing:
            self._record()

    def _record(self) -> None:
        position, acked = self._buffer.read(replication.position), self._buffer.read(pair_state.acked)
        self._lag_s = self._lag.sample(position, acked, self._clock.monotonic())
        if self._session is not None:
            self._session.position = position
        if self._role == self._seen:
            return
        (was_leading, _), self._seen = self._seen, self._role
        is_leading, held = self._seen
        why, self._why = self._why, ""
        if is_leading:
            text = f"leads with epoch {held}: {why or 'granted by central'}{self._missing()}"
        elif was_leading:
            text = f"stopped leading with epoch {held}: {why or f'epoch {self._leadership.node.known} exists'}"
        else:
            return
        now = self._clock.now()
        self._buffer.write(pair_state.note_switch, LastSwitch(to_text(now), text))
        self._buffer.write(event_log.append, [event_log.event(SiteEventKind.PAIR_SWITCHED, now, f"this node {text}")])
        _log.info("pair.switched", is_leading=is_leading, epoch=held, reason=text)
        self.switched()

    def _missing(self) -> str:
        """The numbers that this node lacks of the changes of a silent node, for the record of a takeover."""
        if self._session is None or self._peer_age_s() < SILENCE_S:
            return ""
        announced = self._session.peer_position
        missing = missing_numbers(self._buffer.read(pair_state.received), announced)
        return f"; of node {1 - self._leadership.node.node} it lacks {missing}" if missing else ""

    async def demote(self, reason: str = "") -> None:
        """Hand over to the other node: end work in flight, wait for the copy, give the epoch back.

        Raises Conflict if this node does not lead, and Unavailable if the other node is not there or stays behind.
        """
        if not self._leadership.node.is_leading:
            raise Conflict("pair.standby", "this node does not lead", hint=self._elsewhere)
        session = self._connected_session()
        epoch = self._leadership.node.held
        self._is_paused = True
        try:
            await self._finish(HANDOVER_S)
            until = self._clock.monotonic() + HANDOVER_S
            while await asyncio.to_thread(session.lag):
                if self._clock.monotonic() > until:
                    raise Unavailable("pair.lag", f"the other node stays behind for {HANDOVER_S:g} s; nothing changed")
                await self._clock.sleep(TICK_S)
            self._why = f"handed over to node {1 - self._leadership.node.node}" + (f": {reason}" if reason else "")
            await asyncio.to_thread(self._leadership.step_down)
            await asyncio.to_thread(self._observe)
            await self._lease.give_back(epoch)
            session.post(PairHandover(epoch))
        finally:
            self._is_paused = False

    async def promote(self, *, reason: str = "", is_forced: bool = False) -> None:
        """Become the leader: by request to the other node, or by force without it.

        Raises Conflict if it leads already, and Unavailable if the other node did not hand over.
        """
        if self._leadership.node.is_leading:
            raise Conflict("pair.leads", "this node leads already")
        if is_forced:
            await asyncio.to_thread(self._take, "forced", reason)
            await asyncio.to_thread(self._observe)
            return
        self._connected_session().post(PairSwitch())
        until = self._clock.monotonic() + 2 * HANDOVER_S
        while not self._role[0]:
            if self._clock.monotonic() > until:
                raise Unavailable("pair.not_handed_over", "the other node did not hand over in time")
            await self._clock.sleep(TICK_S)
        await asyncio.to_thread(self._observe)

    async def compare(self) -> ComparedRows:
        """Compare all rows whose state this node knows best with the other node's, and copy again those that differ.

        Raises Unavailable if the other node is not there, or both are too busy.
        """
        session = self._connected_session()
        before = session.checks.compared, session.checks.repaired, session.checks.skipped
        session.checks.begin()
        until = self._clock.monotonic() + COMPARE_S
        while session.is_comparing:
            if self._clock.monotonic() > until or session is not self._session:
                raise Unavailable(
                    "pair.not_compared", "the comparison did not end; try again when the copy is complete"
                )
            await self._clock.sleep(TICK_S)
        after = session.checks.compared, session.checks.repaired, session.checks.skipped
        return ComparedRows(*(now - then for now, then in zip(after, before, strict=True)))

    def _connected_session(self) -> PairSession:
        session = self._session
        if session is None or not session.is_ready or self._peer_age_s() >= SILENCE_S:
            raise Unavailable(
                "pair.unreachable",
                f"the other node at {self._folder.pair.peer} is not connected",
                hint="if it is gone: fieldpost site promote --force --reason TEXT, on the node that is to lead",
            )
        return session

    @property
    def _elsewhere(self) -> str:
        return f"run the command on the other node, at {self._folder.pair.peer}"

    # --- connection

    def _begin(self) -> PairSession:
        announced = StreamPosition() if self._session is None else self._session.peer_position
        self._session = PairSession(
            self._buffer,
            self._folder.name,
            self._clock.now,
            self._leadership,
            digests=self._digests,
            on_leave=self._end,
            on_switch=self._switch,
        )
        self._session.peer_position = announced
        return self._session

    def _switch(self) -> None:
        """Hand over, as the other node asks. Called in a thread of the session."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._start_switch)

    def _start_switch(self) -> None:
        if self._switching is None or self._switching.done():
            self._switching = asyncio.create_task(self._switch_over())

    async def _switch_over(self) -> None:
        try:
            await self.demote("the other node asked for it")
        except FieldpostError as error:
            _log.warning("pair.not_handed_over", code=error.code, error=error.message)

    def _end(self) -> None:
        """The other node has left: this is a single site from now on."""
        become_single(self._folder, self._buffer, self._clock.now())
        self._is_over = True
        _log.info("pair.ended")

    # --- care of the copy

    async def _care(self) -> None:
        while not self._is_over:
            has_more = False
            try:
                while await asyncio.to_thread(self._take_copies):
                    await self._clock.sleep(COPIES_PAUSE_S)
                has_more = await asyncio.to_thread(self._take_care)
            except FieldpostError as error:
                _log.warning("pair.put_off", code=error.code, error=error.message)
            await self._clock.sleep(TICK_S if has_more else CARE_EVERY_S)

    def _take_copies(self) -> bool:
        """Take over notifications of a silent node; returns whether there are more."""
        is_due = self.may_execute() and self._peer_age_s() >= SILENCE_S
        return is_due and self._buffer.write(pair_state.take_copies, COPIES_MAX)

    def _take_care(self) -> bool:
        """Returns whether there is more to prune."""
        has_more = self._buffer.write(replication.prune)
        if removed := self._buffer.read(replication.removed_rows):
            self._buffer.write(replication.prune_removed, removed)
        session = self._session
        if session is None:
            return has_more
        if count := session.checks.take_repaired():
            text = f"{count} ranges of rows differed from the other node's and were copied again"
            entry = event_log.event(SiteEventKind.PAIR_REPAIRED, self._clock.now(), text)
            self._buffer.write(event_log.append, [entry])
            _log.warning("pair.repaired", ranges=count)
        if self._clock.monotonic() - self._checked_at >= CHECK_EVERY_S:
            self._checked_at = self._clock.monotonic()
            session.checks.begin()
        return has_more

    # --- state

    def health(self) -> PairHealth | None:
        """The state of this node, for health reports; None after the pair has ended."""
        if self._is_over:
            return None
        node = self._leadership.node
        grounds = self._leadership.grounds
        session = self._session
        switch = self._buffer.read(pair_state.last_switch)
        has_heard = node.heard_stamp is not None
        return PairHealth(
            node=node.node,
            held=node.held,
            known=node.known,
            is_leading=node.is_leading,
            grounds=None if grounds is None else grounds.value,
            peer_age_s=round(self._peer_age_s(), 1) if has_heard else None,
            peer_version=None if session is None else session.peer_version,
            lag_changes=self._buffer.read(replication.behind, self._buffer.read(pair_state.acked)),
            lag_s=round(self._lag_s, 1),
            switched_at=None if switch is None else switch.at,
            switch_reason=None if switch is None else switch.reason,
            differences=() if session is None else session.differences,
        )

    def _peer_age_s(self) -> float:
        return max(0.0, self._clock.monotonic() - self._leadership.node.heard_at)

    def _ensure_state(self) -> None:
        """Make a new or salvaged buffer that of this node again: the other node sees its new name and copies all."""
        if self._buffer.read(pair_state.find) is None:
            self._buffer.write(pair_state.create, self._folder.node, self._files.shared_incarnation())
            _log.warning("pair.new_buffer", node=self._folder.node)


_CAUSES = {
    "silence": "the leader was silent, and the pair had no central",
    "cut_off": "neither the other node nor central was heard for ten minutes",
    "handed_over": "the other node handed over",
    "forced": "forced",
}
