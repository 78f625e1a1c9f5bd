"""Wake-ups: a hint that something became due. Polling is the truth.

Within a process a wake-up is an event. Across nodes on PostgreSQL it is NOTIFY, coalesced: however many commits there
are, at most one notification leaves per interval, so that ingest never pays for it.
"""

import asyncio
import contextlib
from typing import Protocol

import asyncpg
import structlog
from sqlalchemy.engine import URL

from fieldpost.clock import SystemClock

log = structlog.get_logger()

COALESCE_S = 0.05
RECONNECT_S = 5.0


class Wake(Protocol):
    """Set by whoever made something due, waited for by the dispatcher."""

    def set(self) -> None:
        """Something became due; may be called from the event loop only."""

    def nudge(self) -> None:
        """The same, where only this process need hear of it."""

    async def wait(self, timeout_s: float) -> bool:
        """True as soon as it was set since the last wait, False after the time-out."""

    async def listen(self) -> None:
        """Hear other nodes until cancelled; returns at once where there are none."""

    async def close(self) -> None: ...


class LocalWake:
    """Within this process."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    def nudge(self) -> None:
        self._event.set()

    async def wait(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True

    async def listen(self) -> None:
        return

    async def close(self) -> None:
        return


class PostgresWake(LocalWake):
    """Within this process at once, and over NOTIFY to the other nodes."""

    CHANNEL = "fieldpost_due"

    def __init__(self, url: URL) -> None:
        super().__init__()
        self._dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._to_tell = asyncio.Event()
        self._clock = SystemClock()

    def set(self) -> None:
        self.nudge()
        self._to_tell.set()

    async def listen(self) -> None:
        while True:
            try:
                await self._converse()
            except Exception as error:
                # Whatever it is: where a server ends in mid-conversation the driver loses its own thread, too.
                log.warning("wake.lost", error=str(error) or type(error).__name__)
            await self._clock.sleep(RECONNECT_S)

    async def _converse(self) -> None:
        connection = await asyncpg.connect(self._dsn, timeout=10)
        try:
            await connection.add_listener(self.CHANNEL, lambda *_: self.nudge())
            # What was committed while nobody listened is found by looking once.
            self.nudge()
            while not connection.is_closed():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RECONNECT_S):
                        await self._to_tell.wait()
                if self._to_tell.is_set():
                    self._to_tell.clear()
                    await connection.execute(f"notify {self.CHANNEL}")
                    await self._clock.sleep(COALESCE_S)
        finally:
            connection.terminate()
