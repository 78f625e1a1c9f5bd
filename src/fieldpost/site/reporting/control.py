"""What the agent does on its control connection: it tells how the site is and what its calls come to, and does what
central asks for. Nothing else at the site depends on it: without central it waits, and costs nothing.
"""

import asyncio
from collections.abc import Callable
from random import Random

import structlog

from fieldpost.clock import Clock
from fieldpost.core.errors import FieldpostError, InvalidInput, Unavailable
from fieldpost.link.codec import UNFIT
from fieldpost.link.control import ControlClient
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.messages import Command, LinkMessage, Reconcile, TelemetryAck
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.tracking import Tracking
from fieldpost.site.config.folder import Folder
from fieldpost.site.config.options import ReportOptions
from fieldpost.site.forwarding.forwarder import ForwardHealth
from fieldpost.site.reporting.commands import CommandHandler
from fieldpost.site.reporting.health import HealthReport
from fieldpost.site.reporting.telemetry import TelemetrySender

_log = structlog.stdlib.get_logger("fieldpost.site")


class Control:
    """One for an agent."""

    def __init__(
        self,
        folder: Folder,
        buffer: Buffer,
        forwarding: Callable[[], ForwardHealth],
        clock: Clock,
        random: Random,
        *,
        options: ReportOptions | None = None,
        endpoint: Callable[[], Endpoint] | None = None,
    ) -> None:
        self._options = options or folder.report
        self._buffer = buffer
        self._clock = clock
        self._client = ControlClient(
            endpoint or folder.endpoint, self._handle, clock, random, self._options.reconnect_interval_s
        )
        self._commands = CommandHandler(buffer, clock)
        self._telemetry = TelemetrySender(
            Tracking(buffer.read), self._client.send, clock, is_on=self._options.telemetry
        )
        self._health = HealthReport(buffer, folder.path, forwarding, clock)
        self._nudge = asyncio.Event()

    async def run(self, stopping: asyncio.Event) -> None:
        """Keep the connection open, and report on it, until told to stop."""
        loops = [asyncio.create_task(loop) for loop in (self._client.run(stopping), self._report(), self._tell())]
        try:
            await loops[0]
        finally:
            for task in loops:
                task.cancel()
            await asyncio.gather(*loops, return_exceptions=True)

    async def close(self) -> None:
        """Nothing is held open but what `run` closes."""

    async def _handle(self, message: LinkMessage) -> LinkMessage | None:
        match message:
            case Reconcile():
                answer = await asyncio.to_thread(self._telemetry.answer, message)
                self._nudge.set()
                return answer
            case TelemetryAck():
                self._telemetry.acked(message)
                return None
            case Command():
                result = await asyncio.to_thread(self._commands.apply, message)
                _log.info("command.applied", intent_id=message.intent_id, kind=message.kind, outcome=result.outcome)
                # What it changed is told at once.
                self._nudge.set()
                return result
            case _:
                raise InvalidInput(UNFIT, f"a site does not take {type(message).__name__}")

    async def _report(self) -> None:
        """A health report when the connection opens, and then at every interval."""
        while True:
            if not self._client.is_connected:
                self._telemetry.begin()
                await self._clock.sleep(self._options.poll_s)
                continue
            try:
                await self._client.send(await asyncio.to_thread(self._health.make))
            except Unavailable:
                # The next one is newer.
                self._telemetry.begin()
            except FieldpostError as error:
                _log.warning("health.failed", code=error.code, error=error.message)
            await self._rest_connected(self._options.health_interval_s)

    async def _rest_connected(self, seconds: float) -> None:
        """So long, or until the connection ends."""
        until = self._clock.monotonic() + seconds
        while self._client.is_connected and (left_s := until - self._clock.monotonic()) > 0:
            await self._clock.sleep(min(self._options.poll_s, left_s))

    async def _tell(self) -> None:
        """Tell of changes as they come: a look at the file's mark is cheap, so it is taken often."""
        mark: tuple[int, int] | None = None
        while True:
            try:
                # The mark before the look: what is written meanwhile is seen the next time.
                mark_now = await asyncio.to_thread(self._buffer.change_mark)
                if self._client.is_connected and (mark_now != mark or self._nudge.is_set()):
                    self._nudge.clear()
                    await self._telemetry.sweep()
                    mark = mark_now
            except FieldpostError as error:
                _log.debug("telemetry.put_off", code=error.code, error=error.message)
                mark = None
            await self._clock.sleep(self._options.poll_s)
