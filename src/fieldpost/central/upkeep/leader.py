"""Leader election: the leader is the one node that purges, samples KPIs and indexes.

Theory of operation. A row of `leases` names the leader until a time by the database's clock. The leader renews the
lease every few seconds; other nodes try to take it and succeed once it has expired. Both are one compare-and-set. A
node considers itself the leader only while its last renewal is certainly valid, measured by its monotonic clock from
before the request, so a node that was frozen does not lead when it resumes. If two nodes do the leader's work for a
moment, nothing is lost: purge re-checks each row, and a sample is stored once.
"""

import asyncio

import structlog

from fieldpost.central.store.engine.failures import logged
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.figures import leases
from fieldpost.central.upkeep.options import UpkeepOptions
from fieldpost.clock import Clock
from fieldpost.core.errors import Unavailable

log = structlog.get_logger()


class Leader:
    """The leadership of one node."""

    def __init__(self, store: Store, node_id: str, clock: Clock, options: UpkeepOptions | None = None) -> None:
        self._store = store
        self._node_id = node_id
        self._clock = clock
        self._options = options or UpkeepOptions()
        self._leads_until: float | None = None
        self._elected = asyncio.Event()

    @property
    def is_leader(self) -> bool:
        return self._leads_until is not None and self._clock.monotonic() < self._leads_until

    async def elected(self) -> None:
        """Wait until this node leads."""
        while not self.is_leader:
            self._elected.clear()
            await self._elected.wait()

    async def run(self) -> None:
        """Take and renew the lease until cancelled."""
        while True:
            with logged("leader"):
                await self.campaign()
            await self._clock.sleep(self._options.renew_s)

    async def campaign(self) -> bool:
        """Try to take or renew the lease; returns whether this node leads."""
        asked_at = self._clock.monotonic()
        # A single statement, which commits on the server: a node that freezes meanwhile keeps no lock on the lease.
        lease = await self._store.write_one(
            leases.take, leases.LEADER, self._node_id, lease_s=self._options.lease_s, now=self._store.now()
        )
        led = self._leads_until is not None
        self._leads_until = asked_at + self._options.lease_s if lease is not None else None
        if lease is not None:
            self._elected.set()
            if not led:
                log.info("leader.elected", node_id=self._node_id, token=lease.token)
        elif led:
            log.warning("leader.lost", node_id=self._node_id)
        return self.is_leader

    async def resign(self) -> None:
        """Release the lease, so that another node can lead at once."""
        self._leads_until = None
        try:
            await self._store.write_one(leases.release, leases.LEADER, self._node_id, now=self._store.now())
        except Unavailable as error:  # the lease expires
            log.warning("leader.not_resigned", error=error.message)
