"""The leader: the one node that purges and keeps the history of the KPIs.

Theory of operation. A row of `leases` names the leader until a time by the database's clock. The leader renews it every
few seconds, the others try to take it and succeed once it has run out; both are one compare-and-set. A node holds
itself for the leader only as long as its last renewal is sure to last, by its monotonic clock from before it asked: a
node that was frozen wakes up as no leader. Should two nodes do the leader's work at once for a moment, nothing is lost
by it: purge re-checks each row, and a sample of a moment is kept once.
"""

import asyncio

import structlog

from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.figures import leases
from fieldpost.central.upkeep.options import UpkeepOptions
from fieldpost.clock import Clock
from fieldpost.core.errors import Unavailable

log = structlog.get_logger()


class Leader:
    """One for a node: whether it leads."""

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
        """Return as soon as this node leads."""
        while not self.is_leader:
            self._elected.clear()
            await self._elected.wait()

    async def run(self) -> None:
        """Try to lead, and to stay the leader, until cancelled."""
        while True:
            await self._campaign_safely()
            await self._clock.sleep(self._options.renew_s)

    async def campaign(self) -> bool:
        """Take or renew the lease, if it is to be had; whether this node leads now."""
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
        """Let another node lead at once."""
        self._leads_until = None
        try:
            await self._store.write_one(leases.release, leases.LEADER, self._node_id, now=self._store.now())
        except Unavailable as error:  # then the lease runs out by itself
            log.warning("leader.not_resigned", error=error.message)

    async def _campaign_safely(self) -> None:
        try:
            await self.campaign()
        except Unavailable as error:
            log.warning("leader.not_renewed", error=error.message)
        except Exception:
            log.exception("leader.faulted")
