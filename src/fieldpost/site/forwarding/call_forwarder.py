"""Retries cached calls: claims due calls target by target, attempts them, and settles each result.

Theory of operation. A target is an external system or a database connection. For each target with due calls, as many
calls as it has free slots are claimed and attempted, each in a task; a finished attempt frees its slot. So a hanging
target occupies only its own slots. Claiming is one transaction per target, settling one per call, under the claim: a
result that arrives after the claim was lost changes nothing.

Invariants: while clocks are right, a call is in at most one attempt, and its row names the claimant. If the agent dies,
its claims expire; when it stops, it releases them.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Generic, TypeVar

import structlog

from fieldpost.clock import Clock
from fieldpost.core.errors import FieldpostError
from fieldpost.core.sites.forwarding import Park
from fieldpost.core.sites.message import Category, Message
from fieldpost.site.buffer import calls
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.carriers.carrier import CallCarrier, D
from fieldpost.site.config.options import CallOptions, ForwardOptions
from fieldpost.site.forwarding.attempt import attempt, claim_time

T = TypeVar("T")

SETTLERS = 4
"""How many results are written concurrently; they share a commit."""

_log = structlog.stdlib.get_logger("fieldpost.site")


class CallForwarder(Generic[D]):
    """Forwards the cached calls of one category."""

    def __init__(
        self,
        buffer: Buffer,
        carrier: CallCarrier[D],
        definitions: Mapping[str, D],
        clock: Clock,
        *,
        options: CallOptions | None = None,
        forward: ForwardOptions | None = None,
        may_execute: Callable[[], bool] = lambda: True,
    ) -> None:
        """`may_execute` is asked before each claim and attempt: only one node of a pair retries calls."""
        self._may_execute = may_execute
        self._buffer = buffer
        self._carrier = carrier
        self._definitions = definitions
        self._clock = clock
        self._options = options or CallOptions()
        self._forward = forward or ForwardOptions()
        self._claimant = f"agent-{os.getpid()}"
        self._tasks: set[asyncio.Task[None]] = set()
        self._held: dict[str, Message] = {}
        self._is_failing = False
        self._threads = ThreadPoolExecutor(SETTLERS, thread_name_prefix=f"fieldpost-{carrier.category.value}")

    @property
    def category(self) -> Category:
        return self._carrier.category

    async def run(self, stopping: asyncio.Event) -> None:
        """Attempt due calls until `stopping` is set; attempts in progress are finished first."""
        stopped = asyncio.create_task(stopping.wait())
        try:
            while not stopping.is_set():
                mark = await self._mark()
                await self._start_due()
                await self._rest(mark, stopped)
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            stopped.cancel()

    async def sweep(self) -> int:
        """Attempt all due calls and wait for the results; returns the number of attempts."""
        attempts = 0
        while True:
            attempts += await self._start_due()
            if not self._tasks:
                return attempts
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Release remaining claims and close the carrier. The buffer stays open."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._held:
            await self._give_back(list(self._held.values()))
        await self._carrier.close()
        self._threads.shutdown(wait=True)

    async def finish(self, grace_s: float) -> None:
        """Wait for the attempts in progress, then give back the claims of those that take longer."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._held:
            await self._give_back(list(self._held.values()))

    async def _give_back(self, messages: Sequence[Message]) -> None:
        try:
            await self._do(self._buffer.write, calls.release, messages)
        except FieldpostError as error:
            _log.warning("calls.not_released", code=error.code, error=error.message)
        for message in messages:
            self._held.pop(message.message_id, None)

    async def _start_due(self) -> int:
        """Start attempts of due calls as far as slots are free; returns how many."""
        started = 0
        if not self._may_execute():
            return 0
        try:
            slots = self._options.at_once_max - len(self._held)
            if slots > 0:
                for target in await self._do(self._buffer.read, calls.due_targets, self.category, self._clock.now()):
                    started += await self._start(target, slots - started)
            self._is_failing = False
        except FieldpostError as error:
            # The buffer is unavailable. Due calls stay due; log it once.
            if not self._is_failing:
                _log.warning("calls.failed", category=self.category.value, code=error.code, error=error.message)
            self._is_failing = True
        return started

    async def _start(self, target: str, slots: int) -> int:
        used = Counter(message.target for message in self._held.values())[target]
        items_max = min(slots, self._options.per_target_max - used)
        if items_max <= 0:
            return 0
        definition = self._definitions.get(target)
        now = self._clock.now()
        messages = await self._do(
            self._buffer.write,
            calls.claim,
            self.category,
            target,
            now,
            claimant=self._claimant,
            until=now + claim_time(definition),
            items_max=items_max,
        )
        for message in messages:
            self._held[message.message_id] = message
            task = asyncio.create_task(self._attempt(message, definition))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return len(messages)

    async def _attempt(self, message: Message, definition: D | None) -> None:
        if not self._may_execute():
            # The grounds ended between claim and attempt, perhaps because this process was frozen.
            await self._give_back([message])
            return
        decision = await attempt(self._carrier, message, definition, self._clock, is_caller=False)
        try:
            record = await self._do(self._buffer.write, calls.settle, message, decision, self._clock.now())
        except FieldpostError as error:
            # The call stays claimed until the claim expires, and is retried then.
            _log.warning("call.not_settled", message_id=message.message_id, code=error.code, error=error.message)
        else:
            if record is None:
                _log.warning("call.late", message_id=message.message_id, target=message.target)
            elif isinstance(decision, Park):
                _log.warning("call.parked", message_id=message.message_id, target=message.target, error=decision.error)
        finally:
            self._held.pop(message.message_id, None)

    async def _rest(self, mark: tuple[int, int] | None, stopped: "asyncio.Task[bool]") -> None:
        """Wait until an attempt ends, a call is due, another process has written, or the interval ends."""
        until = self._clock.monotonic() + await self._until_due_s()
        while (left_s := until - self._clock.monotonic()) > 0:
            pause = asyncio.create_task(self._clock.sleep(min(self._forward.poll_s, left_s)))
            try:
                done, _ = await asyncio.wait({pause, stopped, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                pause.cancel()
            if done != {pause} or await self._mark() != mark:
                return

    async def _until_due_s(self) -> float:
        """The seconds until the next call is due, at most the interval."""
        interval_s = self._forward.interval_s
        try:
            now = self._clock.now()
            due_at = await self._do(self._buffer.read, calls.next_due, self.category, now)
        except FieldpostError:
            return interval_s
        return interval_s if due_at is None else min(interval_s, max((due_at - now).total_seconds(), 0.0))

    async def _mark(self) -> tuple[int, int] | None:
        try:
            return await self._do(self._buffer.change_mark)
        except FieldpostError:
            return None

    async def _do(self, work: Callable[..., T], *arguments: object, **named: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *arguments, **named))
