"""The agent: what runs beside the scripts of one site and forwards what they buffer. One per folder."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Protocol

import structlog

from fieldpost.clock import Clock
from fieldpost.core.errors import ConfigError
from fieldpost.link.client import LinkClient
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
from fieldpost.site.repair.damage import refuse_damaged
from fieldpost.site.reporting.control import Control
from fieldpost.site.upkeep import BufferUpkeep

_log = structlog.stdlib.get_logger("fieldpost.site")


class Agent:
    """Starts and stops all that runs for one site's folder."""

    def __init__(self, folder: Folder, clock: Clock, random: Random, forward: ForwardOptions | None = None) -> None:
        self._folder = folder
        self._clock = clock
        self._random = random
        self._options = forward or folder.forward

    async def run(self, stopping: asyncio.Event) -> None:
        """Forward until told to stop, then finish what is under way within the grace time.

        Raises Conflict when another agent runs for the folder, ConfigError when the token cannot be used,
        Unavailable when the buffer is damaged or cannot be opened.
        """
        with AgentLock(self._folder.path):
            self._folder.endpoint()
            refuse_damaged(self._folder.buffer_path)
            refuse_read_only(self._folder.buffer_path)
            buffer = Buffer(self._folder.buffer_path, self._folder.buffer, self._folder.events)
            parts = self._parts(buffer)
            _log.info("agent.started", site=self._folder.name, central=self._folder.central_url)
            self._tell_unusable()
            try:
                await self._run_with_grace(parts, stopping)
            finally:
                for part in parts:
                    await part.close()
                buffer.close()
                _log.info("agent.stopped", site=self._folder.name)

    def _tell_unusable(self) -> None:
        """Say which definitions lack something, once; what goes to them waits, and nothing else does."""
        for definition in self._folder.definitions:
            try:
                definition.check()
            except ConfigError as error:
                _log.warning("definition.unusable", name=definition.name, code=error.code, error=str(error))

    def _parts(self, buffer: Buffer) -> "list[AgentTask]":
        """All that runs; each on its own, so that a slow external system never delays a notification."""
        folder, clock = self._folder, self._clock
        session = LinkSession(self._options.batch_items, self._options.batch_bytes)
        central = CentralCarrier(LinkClient(folder.endpoint, session, clock), session)
        external = ExternalCarrier(clock, folder.outbound)
        database = DatabaseCarrier(clock, folder.outbound)
        forwarder = Forwarder(buffer, central, self._options, clock, self._random)
        return [
            forwarder,
            CallForwarder(buffer, external, folder.externals, clock, options=folder.calls, forward=self._options),
            CallForwarder(buffer, database, folder.databases, clock, options=folder.calls, forward=self._options),
            BufferUpkeep(buffer, clock, tracking=folder.tracking, events=folder.events),
            Control(folder, buffer, lambda: forwarder.health, clock, self._random),
            LocalApi(folder, buffer, clock, health=lambda: forwarder.health),
        ]

    async def _run_with_grace(self, parts: "Sequence[AgentTask]", stopping: asyncio.Event) -> None:
        """Run all until told to stop, or until one ends, which it does only by a failure; then give the grace time."""
        running = [asyncio.create_task(part.run(stopping), name=type(part).__name__) for part in parts]
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


class AgentTask(Protocol):
    """One of the things that an agent runs."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until told to stop; what is under way then is finished first."""

    async def close(self) -> None:
        """Give back what is held open."""
