"""The indexer: adds new notifications to the search index, on the leader, in batches.

Nothing waits for it: a search scans notifications that are not indexed yet. So it waits until there are enough for
large batches, and pauses after each batch for as long as the batch took, since ingest has priority.
"""

import random
from datetime import datetime, timedelta

from sqlalchemy import Connection

from fieldpost.central.store.engine.failures import logged
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.search import terms
from fieldpost.central.upkeep.leader import Leader
from fieldpost.clock import Clock

INTERVAL_S = 1.0
ENOUGH = 500
"""The number of unindexed notifications that starts a batch."""
AGE_MAX = timedelta(hours=1)
"""A smaller batch starts when the oldest has waited this long."""
BATCH_ROWS = 1000


class Indexer:
    """The indexer of one node; it works while the node leads."""

    def __init__(self, store: Store, clock: Clock, leader: Leader, rng: random.Random | None = None) -> None:
        self._store = store
        self._clock = clock
        self._leader = leader
        self._rng = rng or random.Random()

    async def run(self) -> None:
        """Index while this node leads, until cancelled."""
        while True:
            await self._leader.elected()
            with logged("index"):
                await self.sweep()
            await self._clock.sleep(INTERVAL_S)

    async def sweep(self) -> int:
        """Index until too few are left for a batch; returns the number of notifications indexed."""
        count = 0
        while self._leader.is_leader and await self._store.read(_is_due, now=self._store.now()):
            began = self._clock.monotonic()
            count += await self._store.write(terms.index, BATCH_ROWS, self._rng.getrandbits(62))
            await self._clock.sleep(self._clock.monotonic() - began)
        return count


def _is_due(conn: Connection, *, now: datetime | None) -> bool:
    found = terms.backlog(conn, ENOUGH)
    if found.since is None:
        return False
    return found.count >= ENOUGH or database_time(conn, now) - found.since > AGE_MAX
