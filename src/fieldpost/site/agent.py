"""The agent: what runs beside the scripts of one site and forwards what they buffer. One per folder."""

import asyncio
from random import Random

import structlog

from fieldpost.clock import Clock
from fieldpost.link.client import LinkClient
from fieldpost.link.session import Session
from fieldpost.site.agent_lock import AgentLock
from fieldpost.site.buffer import Buffer
from fieldpost.site.carriers.central import CentralCarrier
from fieldpost.site.damage import refuse_damaged
from fieldpost.site.folder import Folder
from fieldpost.site.forwarder import Forwarder
from fieldpost.site.options import ForwardOptions

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
            buffer = Buffer(self._folder.buffer_path)
            session = Session(self._options.batch_items, self._options.batch_bytes)
            carrier = CentralCarrier(LinkClient(self._folder.endpoint, session, self._clock), session)
            forwarder = Forwarder(buffer, [carrier], self._options, self._clock, self._random)
            _log.info("agent.started", site=self._folder.name, central=self._folder.central_url)
            try:
                await self._run_with_grace(forwarder, stopping)
            finally:
                await forwarder.close()
                buffer.close()
                _log.info("agent.stopped", site=self._folder.name)

    async def _run_with_grace(self, forwarder: Forwarder, stopping: asyncio.Event) -> None:
        running = asyncio.create_task(forwarder.run(stopping), name="forwarder")
        stopped = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await asyncio.wait({running}, timeout=self._options.grace_s)
        finally:
            for task in (running, stopped):
                task.cancel()
            results = await asyncio.gather(running, stopped, return_exceptions=True)
        if isinstance(results[0], Exception):
            raise results[0]
