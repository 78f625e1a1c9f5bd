"""The sampler: stores the history of KPIs, per site and in total, and of site health."""

from datetime import UTC, datetime, timedelta

from fieldpost.central.store.engine.failures import logged
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.figures import kpis, samples
from fieldpost.central.store.sites import health
from fieldpost.central.upkeep.leader import Leader
from fieldpost.central.upkeep.options import UpkeepOptions
from fieldpost.clock import Clock
from fieldpost.core.kpi import Thresholds
from fieldpost.core.sites.health import Freshness

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Sampler:
    """The sampler of one node; it works while the node leads."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        leader: Leader,
        by: Thresholds,
        options: UpkeepOptions | None = None,
        freshness: Freshness | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._leader = leader
        self._by = by
        self._freshness = freshness or Freshness()
        self._interval = timedelta(seconds=(options or UpkeepOptions()).sample_interval_s)

    async def run(self) -> None:
        """Take a sample in every interval while this node leads, until cancelled."""
        while True:
            await self._leader.elected()
            await self._clock.sleep(await self._sweep_safely())

    async def sweep(self) -> datetime:
        """Store a sample, unless this interval has one; returns the database's time of the sample."""
        snapshot = await self._store.read(kpis.snapshot, self._by, now=self._store.now())
        taken_at = begin_of(snapshot.as_of, self._interval)
        await self._store.write(samples.add, taken_at, snapshot)
        await self._store.write(health.sample, taken_at, self._freshness, now=snapshot.as_of)
        return snapshot.as_of

    async def _sweep_safely(self) -> float:
        """Sample, logging any failure; returns how long to wait for the next sample."""
        wait = self._interval
        with logged("sample", "error"):
            taken_at = await self.sweep()
            wait = begin_of(taken_at, self._interval) + self._interval - taken_at
        return wait.total_seconds()


def begin_of(moment: datetime, interval: timedelta) -> datetime:
    """The start of the interval that contains this time."""
    return moment - (moment - _EPOCH) % interval
