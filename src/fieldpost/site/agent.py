"""The agent: one process per site folder, which forwards the messages that scripts have buffered."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any, Protocol

import structlog

from fieldpost.clock import Clock
from fieldpost.core.errors import ConfigError
from fieldpost.link.client import LinkClient
from fieldpost.link.messages import LinkMessage
from fieldpost.link.session import LinkSession
from fieldpost.site.buffer.agent_lock import AgentLock
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.connection import refuse_read_only
from fieldpost.site.carriers.central import CentralCarrier
from fieldpost.site.carriers.database import DatabaseCarrier
from fieldpost.site.carriers.http import ExternalCarrier
from fieldpost.site.config.folder import Folder
from fieldpost.site.config.options import ForwardOptions
from fieldpost.site.forwarding.call_forwarder import CallForwarder
from fieldpost.site.forwarding.forwarder import Forwarder
from fieldpost.site.local.server import LocalApi
from fieldpost.site.pair.node import PairNodeTask
from fieldpost.site.pair.pair_files import PairFiles
from fieldpost.site.repair.damage import refuse_damaged
from fieldpost.site.reporting.control import Control
from fieldpost.site.upkeep import BufferUpkeep

_log = structlog.stdlib.get_logger("fieldpost.site")


class Agent:
    """Starts and stops all tasks of one site's agent."""

    def __init__(self, folder: Folder, clock: Clock, random: Random, forward: ForwardOptions | None = None) -> None:
        self._folder = folder
        self._clock = clock
        self._random = random
        self._options = forward or folder.forward

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until `stopping` is set, then finish work in progress within the grace time.

        Raises Conflict if another agent runs for the folder, ConfigError if the token cannot be used, and Unavailable
        if the buffer is damaged or cannot be opened.
        """
        with AgentLock(self._folder.path):
            self._folder.endpoint()
            refuse_damaged(self._folder.buffer_path)
            refuse_read_only(self._folder.buffer_path)
            buffer = Buffer(self._folder.buffer_path, self._folder.buffer, self._folder.events)
            tasks = self._tasks(buffer)
            _log.info("agent.started", site=self._folder.name, central=self._folder.central_url)
            self._log_unusable()
            try:
                await self._run_with_grace(tasks, stopping)
            finally:
                for task in tasks:
                    await task.close()
                buffer.close()
                _log.info("agent.stopped", site=self._folder.name)

    def _log_unusable(self) -> None:
        """Log definitions that cannot be used, once. Their calls wait; all others are not affected."""
        for definition in self._folder.definitions:
            try:
                definition.check()
            except ConfigError as error:
                _log.warning("definition.unusable", name=definition.name, code=error.code, error=str(error))

    def _tasks(self, buffer: Buffer) -> "list[AgentTask]":
        """The tasks of the agent, independent of each other, so that a slow external system delays no notification."""
        folder, clock = self._folder, self._clock
        session = LinkSession(self._options.batch_items, self._options.batch_bytes)
        central = CentralCarrier(LinkClient(folder.endpoint, session, clock), session)
        external = ExternalCarrier(clock, folder.outbound)
        database = DatabaseCarrier(clock, folder.outbound)
        forwarder = Forwarder(buffer, central, self._options, clock, self._random)

        async def finish(grace_s: float) -> None:
            await asyncio.gather(calls.finish(grace_s), writes.finish(grace_s))

        async def send(message: LinkMessage) -> None:
            await control.send(message)

        pair: PairNodeTask | None = None
        if PairFiles(folder.path).is_paired:
            pair = PairNodeTask(folder, buffer, clock, self._random.getrandbits(48), send, finish)
        may_execute = pair.may_execute if pair is not None else _always
        given: dict[str, Any] = {"options": folder.calls, "forward": self._options, "may_execute": may_execute}
        calls = CallForwarder(buffer, external, folder.externals, clock, **given)
        writes = CallForwarder(buffer, database, folder.databases, clock, **given)
        control = Control(folder, buffer, lambda: forwarder.health, clock, self._random, pair=pair)
        return [
            forwarder,
            calls,
            writes,
            BufferUpkeep(buffer, clock, tracking=folder.tracking, events=folder.events, may_execute=may_execute),
            control,
            LocalApi(folder, buffer, clock, health=lambda: forwarder.health, pair=pair),
            *([] if pair is None else [pair]),
        ]

    async def _run_with_grace(self, tasks: "Sequence[AgentTask]", stopping: asyncio.Event) -> None:
        """Run all tasks until `stopping` is set or one fails, then wait for the grace time."""
        running = [asyncio.create_task(task.run(stopping), name=type(task).__name__) for task in tasks]
        stopped = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait({*running, stopped}, return_when=asyncio.FIRST_COMPLETED)
            stopping.set()
            await asyncio.wait(running, timeout=self._options.grace_s)
        finally:
            for task in (*running, stopped):
                task.cancel()
            results = await asyncio.gather(*running, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result


def _always() -> bool:
    return True


class AgentTask(Protocol):
    """One task of an agent."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set, then finish work in progress."""

    async def close(self) -> None:
        """Release resources."""
