"""What every page shows beside its menu: how much waits for a person, and where; and what has changed."""

from dataclasses import dataclass

from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.figures.change_tokens import marks
from fieldpost.central.store.notifications import breakers
from fieldpost.central.watch.health import HealthReader
from fieldpost.central.watch.shared_read import SharedRead
from fieldpost.central.watch.sites import SiteReader, SiteState
from fieldpost.clock import Clock
from fieldpost.core.breaker import BreakerState
from fieldpost.core.notification import Status
from fieldpost.core.sites.health import SiteCondition


@dataclass(frozen=True, slots=True)
class Signal:
    """What waits for a person at one place."""

    parked: int
    """Parked notifications; as many as the counts tell, or more."""
    sites: int
    """Sites that should be heard of and are not."""
    breakers: int
    """Channels that nothing is sent by at present."""


class Signals:
    """Looking for what needs somebody."""

    def __init__(self, store: Store, clock: Clock, health: HealthReader, sites: SiteReader) -> None:
        self._store = store
        self._health = health
        self._sites = sites
        self._glance = SharedRead(self._look, clock)

    async def now(self) -> Signal:
        """As of a moment ago."""
        return await self._glance.get()

    async def marks(self) -> dict[str, str]:
        """A mark for each topic, which is another one when something has changed."""
        return await self._store.read(marks)

    async def _look(self) -> Signal:
        counts = await self._health.counts()
        fleet = await self._sites.all()
        found = await self._store.read(breakers.load)
        return Signal(
            counts[Status.PARKED],
            sum(_is_missed(site) for site in fleet.sites),
            sum(breaker.state is not BreakerState.CLOSED for breaker in found.values()),
        )


def _is_missed(site: SiteState) -> bool:
    """A site that never reported is being set up, and a revoked one is not to be heard of."""
    return site.standing in (SiteCondition.OFFLINE, SiteCondition.LATE)
