"""Ends the database sessions of frozen nodes, so that other nodes can take over the rows that these have locked."""

import structlog

from fieldpost.central.store.engine.failures import logged
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.engine.stuck_sessions import end_stuck_sessions
from fieldpost.central.upkeep.options import UpkeepOptions
from fieldpost.clock import Clock

log = structlog.get_logger()


class SessionWatch:
    """Runs on every node: the frozen one may be the leader."""

    def __init__(self, store: Store, clock: Clock, options: UpkeepOptions | None = None) -> None:
        self._store = store
        self._clock = clock
        self._options = options or UpkeepOptions()

    async def run(self) -> None:
        """Sweep until cancelled; returns at once on an embedded store, which has one node."""
        while self._store.now() is None:
            await self._clock.sleep(self._options.renew_s)
            with logged("sessions"):
                await self.sweep()

    async def sweep(self) -> None:
        if count := await self._store.read_one(end_stuck_sessions):
            log.warning("sessions.ended", count=count)
