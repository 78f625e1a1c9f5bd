"""The indexer: makes what has arrived findable by its terms, on the leading node, some hundred at a time.

Nothing waits for it: a search walks what is not indexed yet. So it waits until there is enough for few large chunks
rather than many small ones, and rests after each batch for as long as it took, since ingest comes first.
"""

import random
from datetime import datetime, timedelta

import structlog
from sqlalchemy import Connection

from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.search import terms
from fieldpost.central.upkeep.leader import Leader
from fieldpost.clock import Clock
from fieldpost.core.errors import Unavailable

log = structlog.get_logger()

INTERVAL_S = 1.0
ENOUGH = 500
"""So many arrivals are worth a batch."""
AGE_MAX = timedelta(hours=1)
"""Fewer are indexed when they have waited so long."""
BATCH_ROWS = 1000


class Indexer:
    """One for a node."""

    def __init__(self, store: Store, clock: Clock, leader: Leader, rng: random.Random | None = None) -> None:
        self._store = store
        self._clock = clock
        self._leader = leader
        self._rng = rng or random.Random()

    async def run(self) -> None:
        """Index while this node leads, until cancelled."""
        while True:
            await self._leader.elected()
            await self._sweep_safely()
            await self._clock.sleep(INTERVAL_S)

    async def sweep(self) -> int:
        """Index until there is not enough left for a batch; how many notifications."""
        count = 0
        while self._leader.is_leader and await self._store.read(_is_due, now=self._store.now()):
            began = self._clock.monotonic()
            count += await self._store.write(terms.index, BATCH_ROWS, self._rng.getrandbits(62))
            await self._clock.sleep(self._clock.monotonic() - began)
        return count

    async def _sweep_safely(self) -> None:
        try:
            await self.sweep()
        except Unavailable as error:
            log.warning("index.failed", error=error.message)
        except Exception:
            log.exception("index.faulted")


def _is_due(conn: Connection, *, now: datetime | None) -> bool:
    found = terms.backlog(conn, ENOUGH)
    if found.since is None:
        return False
    return found.count >= ENOUGH or database_time(conn, now) - found.since > AGE_MAX
