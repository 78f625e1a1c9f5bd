"""Watches the machine's clock under an embedded store, whose due times and leases depend on it.

A clock that was set back by a day would make every waiting row wait a day longer. A step is the difference between wall
clock and monotonic time; after a step back the awaited times are moved by it (`store.figures.redating`). A step while
central was stopped shows at the next start, as a heartbeat from the future. After a step forwards, waiting rows are due
earlier, each once: there is nothing to move.

A row that is stored in the second between a step and its discovery may be tried early.
"""

import structlog

from fieldpost.central.store.engine.failures import logged
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.figures import redating
from fieldpost.clock import Clock

log = structlog.get_logger()

CHECK_S = 1.0
STEP_S = 2.0
"""Smaller differences are the ordinary corrections of a clock."""


class ClockWatch:
    """The clock of one node."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._offset_s = self._offset()

    async def start(self) -> None:
        """Before the node uses the store: move times that an earlier run stored under a clock ahead of this one."""
        last = await self._store.read(redating.last_heartbeat) if self._store.now() is not None else None
        if last is not None:
            await self._stepped((self._clock.now() - last).total_seconds(), is_start=True)

    async def run(self) -> None:
        """Check the clock every second; returns at once on PostgreSQL, whose own clock decides."""
        while self._store.now() is not None:
            await self._clock.sleep(CHECK_S)
            with logged("clock", "error"):
                await self.sweep()

    async def sweep(self) -> None:
        """Compare the clock with the last check."""
        step_s = (offset_s := self._offset()) - self._offset_s
        await self._stepped(step_s)
        if abs(step_s) > STEP_S:
            self._offset_s = offset_s

    async def _stepped(self, step_s: float, *, is_start: bool = False) -> None:
        if step_s < -STEP_S:
            moved = await self._store.write(redating.set_back, -step_s, now=self._clock.now())
            self._store.wake.set()
            log.warning("clock.set_back", seconds=round(-step_s, 3), notifications=moved)
        elif step_s > STEP_S and not is_start:
            log.warning("clock.set_forward", seconds=round(step_s, 3))

    def _offset(self) -> float:
        return self._clock.now().timestamp() - self._clock.monotonic()
