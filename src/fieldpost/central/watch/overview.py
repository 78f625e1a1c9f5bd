"""The state of the whole installation with its issues, shared by all surfaces; and the change tokens of its tables."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.figures.change_tokens import marks
from fieldpost.central.store.figures.site_usage import usage_of
from fieldpost.central.store.notifications import breakers
from fieldpost.central.watch.channel_checks import ChannelChecks
from fieldpost.central.watch.channels import ChannelReader
from fieldpost.central.watch.events.event_health import read_event_health
from fieldpost.central.watch.health import HealthReader
from fieldpost.central.watch.issue import Issue
from fieldpost.central.watch.issues import HealthInputs, judge
from fieldpost.central.watch.kpis import Kpis
from fieldpost.central.watch.nodes import Nodes
from fieldpost.central.watch.shared_read import SharedRead
from fieldpost.central.watch.sites import SiteReader, worst_first
from fieldpost.clock import Clock
from fieldpost.core.events.subscription import SUBSCRIPTION_KEY
from fieldpost.core.kpi import KpiValues, Snapshot, of_kind
from fieldpost.core.sites.usage import WARNING_SHARE, SiteCeilings, SiteUsage
from fieldpost.core.text import BODY_BYTES_MAX, SUBJECT_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Overview:
    """The inputs of the judgement and its result."""

    snapshot: Snapshot
    inputs: HealthInputs
    issues: list[Issue]


class OverviewReader:
    """Reads the overview from the store, once for all callers of the same moment."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        health: HealthReader,
        kpis: Kpis,
        nodes: Nodes,
        sites: SiteReader,
        channels: ChannelReader,
        ceilings: SiteCeilings,
        template_wait: timedelta = timedelta(days=7),
        channel_checks: ChannelChecks | None = None,
    ) -> None:
        self._store = store
        self._health = health
        self._kpis = kpis
        self._nodes = nodes
        self._sites = sites
        self._channels = channels
        self._ceilings = ceilings
        self._template_wait = template_wait
        self._channel_checks = channel_checks
        self._shared = SharedRead(self._read, clock)

    async def now(self) -> Overview:
        """The overview, at most moments old."""
        return await self._shared.get()

    async def change_tokens(self) -> dict[str, str]:
        """A token for each topic, which differs after every change."""
        return await self._store.read(marks)

    async def _usage(self, snapshot: Snapshot) -> dict[str, SiteUsage]:
        """The usage of the sites that have enough live notifications to be close to a ceiling."""
        rows = {site: int(kpis["queue_depth"] + kpis["parked"]) for site, kpis in _sums(snapshot)}
        large = [
            site
            for site, count in rows.items()
            if self._ceilings.share(SiteUsage(count, count * (BODY_BYTES_MAX + SUBJECT_BYTES_MAX))) >= WARNING_SHARE
        ]
        return await self._store.read(usage_of, large) if large else {}

    async def _read(self) -> Overview:
        snapshot, fleet = await self._kpis.now(), await self._sites.all()
        ready, channels = await self._health.readiness(), await self._channels.all()
        receivers = await self._store.read(breakers.failing_counts, SUBSCRIPTION_KEY)
        inputs = HealthInputs(
            as_of=snapshot.as_of,
            figures=of_kind(snapshot.total),
            by=self._kpis.by,
            sites=worst_first(fleet.sites),
            centre=await self._nodes.all(),
            channels=channels.channels,
            checks=ready.checks,
            keys=self._health.key_problems([state.channel for state in channels.channels]),
            usage=await self._usage(snapshot),
            ceilings=self._ceilings,
            blocked_receivers=receivers["blocked"],
            channel_warnings=await self._channel_checks.warnings() if self._channel_checks else (),
            events=await self._store.read(read_event_health, snapshot.as_of, self._template_wait),
        )
        return Overview(snapshot, inputs, judge(inputs))


def _sums(snapshot: Snapshot) -> Iterator[tuple[str, KpiValues]]:
    return ((site, of_kind(kpis)) for site, kpis in snapshot.of_sites.items())
