"""Ceilings per site, so that one site cannot fill the store: beyond them its notifications stay at the site.

Counting rows at every submit would be too slow. A node adds up what it stores for a site and measures the site's usage
only after a sixteenth of a ceiling, so an ordinary site is never measured. A site can exceed its ceiling by that share
per node. A site that is full is measured again every few seconds, since deliveries make room.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.figures.site_usage import usage_of
from fieldpost.clock import Clock
from fieldpost.core.notification import Submission
from fieldpost.core.sites.usage import SiteCeilings, SiteUsage

STEP = 16
"""A site is measured after this part of a ceiling."""
WAIT_S = 30.0
"""The time to wait that a full site gets."""
REMEASURE_S = 5.0


@dataclass(slots=True)
class _Account:
    measured: SiteUsage = field(default_factory=SiteUsage)
    added: SiteUsage = field(default_factory=SiteUsage)
    measured_at: float | None = None


class SiteCeilingGuard:
    """The usage of all sites, as far as this node knows it."""

    def __init__(self, store: Store, clock: Clock, ceilings: SiteCeilings) -> None:
        self._store = store
        self._clock = clock
        self._ceilings = ceilings
        self._accounts: dict[str, _Account] = {}

    async def is_full(self, site: str) -> bool:
        """Whether the site must keep its notifications for now."""
        account = self._accounts.get(site)
        if account is None:
            return False
        is_full = self._ceilings.share(account.measured.plus(account.added)) >= 1
        if self._ceilings.share(account.added) * STEP < 1 and not is_full:
            return False
        now = self._clock.monotonic()
        if account.measured_at is None or not is_full or now - account.measured_at >= REMEASURE_S:
            # What is added while the query runs is counted twice, until the next one.
            measured = await self._store.read(usage_of, [site])
            account.measured, account.added = measured.get(site, SiteUsage()), SiteUsage()
            account.measured_at = now
        return self._ceilings.share(account.measured.plus(account.added)) >= 1

    def add(self, site: str, stored: Sequence[Submission]) -> None:
        """Count notifications that were stored."""
        account = self._accounts.setdefault(site, _Account())
        # Characters instead of bytes: cheap, and corrected by the next measurement.
        size = sum([len(one.subject) + len(one.body) for one in stored])
        account.added = account.added.plus(SiteUsage(len(stored), size))
