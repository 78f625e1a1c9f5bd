"""The agent's control connection: it sends health reports and telemetry, and applies the commands of central.

Nothing else at the site depends on it.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import structlog

from fieldpost.clock import Clock
from fieldpost.core.errors import Conflict, FieldpostError, InvalidInput, Unavailable
from fieldpost.link.codec import UNFIT
from fieldpost.link.control import ControlClient
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.messages import STANDBY, Command, EpochAnswer, LinkMessage, Reconcile, TelemetryAck
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.tracking import Tracking
from fieldpost.site.config.folder import Folder
from fieldpost.site.config.options import ReportOptions
from fieldpost.site.forwarding.forwarder import ForwardHealth
from fieldpost.site.pair.node import PairNodeTask
from fieldpost.site.reporting.commands import CommandHandler
from fieldpost.site.reporting.health import HealthReport
from fieldpost.site.reporting.telemetry import TelemetrySender

CLOSING_S = 2.0
"""The time limit for the closing report."""

_log = structlog.stdlib.get_logger("fieldpost.site")


class Control:
    """The control connection of one agent."""

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
        pair: PairNodeTask | None = None,
    ) -> None:
        """`pair`: only the node that executes reports calls and answers central's queries."""
        self._pair = pair
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
        health = (lambda: None) if pair is None else pair.health
        self._health = HealthReport(buffer, folder.path, forwarding, clock, health)
        self._nudge = asyncio.Event()
        self._is_health_due = False
        if pair is not None:
            pair.switched = self._report_switch

    async def run(self, stopping: asyncio.Event) -> None:
        """Keep the connection open and report over it until `stopping` is set; then send a closing report."""
        closing = asyncio.Event()
        connected = asyncio.create_task(self._client.run(closing))
        loops = [asyncio.create_task(loop) for loop in (stopping.wait(), self._send_health(), self._send_changes())]
        try:
            await asyncio.wait([connected, loops[0]], return_when=asyncio.FIRST_COMPLETED)
            await _end(loops)
            await self._send_closing_report()
            closing.set()
            await connected
        finally:
            await _end([connected, *loops])

    async def close(self) -> None:
        """`run` closes the connection."""

    async def send(self, message: LinkMessage) -> None:
        """Send a message to central. Raises Unavailable without a connection."""
        await self._client.send(message)

    def _report_switch(self) -> None:
        """Send a health report at once."""
        self._is_health_due = True

    @property
    def _reports_calls(self) -> bool:
        return self._pair is None or self._pair.may_execute()

    async def _handle(self, message: LinkMessage) -> LinkMessage | None:
        match message:
            case EpochAnswer() if self._pair is not None:
                await asyncio.to_thread(self._pair.hear_central, message)
                return None
            case Reconcile() | Command() if not self._reports_calls:
                raise Conflict(STANDBY, "this node of the pair does not lead")
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
                # Report the change immediately.
                self._nudge.set()
                return result
            case _:
                raise InvalidInput(UNFIT, f"a site does not accept {type(message).__name__}")

    async def _send_health(self) -> None:
        """Send a health report when the connection opens, then at every interval."""
        while True:
            if not self._client.is_connected:
                self._telemetry.begin()
                await self._clock.sleep(self._options.poll_s)
                continue
            try:
                await self._client.send(await asyncio.to_thread(self._health.make))
            except Unavailable:
                # Not repeated: the next report is newer.
                self._telemetry.begin()
            except FieldpostError as error:
                _log.warning("health.failed", code=error.code, error=error.message)
            await self._rest_connected(self._options.health_interval_s)

    async def _send_closing_report(self) -> None:
        """Let central show the site as stopped at once. Without an answer in time, it is shown as offline later."""
        with suppress(FieldpostError, TimeoutError):
            async with asyncio.timeout(CLOSING_S):
                await self._client.send(await asyncio.to_thread(self._health.make, is_stopping=True))

    async def _rest_connected(self, seconds: float) -> None:
        """Wait for this time, or until the connection ends."""
        until = self._clock.monotonic() + seconds
        while self._client.is_connected and (left_s := until - self._clock.monotonic()) > 0:
            if self._is_health_due:
                self._is_health_due = False
                return
            await self._clock.sleep(min(self._options.poll_s, left_s))

    async def _send_changes(self) -> None:
        """Send changes as they happen; checking the change mark is cheap, so it is done often."""
        mark: tuple[int, int] | None = None
        reports = True
        while True:
            try:
                reported, reports = reports, self._reports_calls
                if reports and not reported:
                    self._telemetry.resume()
                    mark = None
                # Read the mark before the rows: later writes are then seen the next time.
                mark_now = await asyncio.to_thread(self._buffer.change_mark)
                if reports and self._client.is_connected and (mark_now != mark or self._nudge.is_set()):
                    self._nudge.clear()
                    await self._telemetry.sweep()
                    mark = mark_now
            except FieldpostError as error:
                _log.debug("telemetry.put_off", code=error.code, error=error.message)
                mark = None
            await self._clock.sleep(self._options.poll_s)


async def _end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
