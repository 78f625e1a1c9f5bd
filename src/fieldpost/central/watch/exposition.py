"""The text that Prometheus reads: this node's own counters, and what the store says of the whole centre.

A scrape works without the store too: then it tells of the node alone, and `fieldpost_store_up` is 0.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import breakers
from fieldpost.central.watch.issues import Issue, IssueCode, IssueSeverity
from fieldpost.central.watch.kpis import Kpis
from fieldpost.central.watch.metrics import Metrics
from fieldpost.central.watch.nodes import Centre, Nodes, NodeState
from fieldpost.central.watch.overview import OverviewReader
from fieldpost.central.watch.sites import Fleet, SiteReader
from fieldpost.core.breaker import Breaker, BreakerState
from fieldpost.core.errors import Unavailable
from fieldpost.core.kpi import KPIS, Kpi, Snapshot
from fieldpost.core.sites.health import LinkState


class Exposition:
    """What one node exposes."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(
        self, store: Store, metrics: Metrics, kpis: Kpis, nodes: Nodes, sites: SiteReader, overview: OverviewReader
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._kpis = kpis
        self._nodes = nodes
        self._sites = sites
        self._overview = overview

    async def text(self) -> str:
        registry = CollectorRegistry()
        registry.register(_Families(await self._families()))
        return (generate_latest(self._metrics.registry) + generate_latest(registry)).decode()

    async def _families(self) -> list[Metric]:
        try:
            snapshot, centre = await self._kpis.now(), await self._nodes.all()
            found = await self._store.read(breakers.load)
            fleet, overview = await self._sites.all(), await self._overview.now()
        except Unavailable:
            return [_gauge(STORE_UP, [((), 0)])]
        return [
            _gauge(STORE_UP, [((), 1)]),
            *_of_kpis(snapshot),
            *_of_centre(centre),
            _of_breakers(found.values()),
            *_of_fleet(fleet),
            _of_issues(overview.issues),
        ]


@dataclass(frozen=True, slots=True)
class Told:
    """A metric that is read from the store."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


STORE_UP = Told("fieldpost_store_up", "1 when the central store could be read for this scrape.")
NODES = Told("fieldpost_nodes", "The nodes of the centre that are listed, by state.", ("state",))
LEASE = Told(
    "fieldpost_lease_remaining_seconds", "For how long a lease still lasts; below 0 it has run out.", ("name", "owner")
)
BREAKER = Told(
    "fieldpost_breaker_state", "1 for the state that a breaker is in, 0 for its others.", ("breaker", "state")
)
SITE_LINK = Told("fieldpost_site_link_state", "1 for the state that a site is in, 0 for its others.", ("site", "state"))
SITE_AGE = Told("fieldpost_site_report_age_seconds", "How old the last health report of a site is.", ("site",))
SITE_DEPTH = Told(
    "fieldpost_site_buffer_depth", "What waits in a site's buffer, as it reports, by category.", ("site", "category")
)
SITE_OLDEST = Told(
    "fieldpost_site_buffer_oldest_seconds", "For how long the oldest of that waits, as the site reports.", ("site",)
)
SITE_PARKED = Told("fieldpost_site_buffer_parked", "Cached calls parked at a site, as it reports.", ("site",))
SITE_REJECTED = Told(
    "fieldpost_site_buffer_rejected", "Notifications in a site's rejected box, as it reports.", ("site",)
)
SITE_DISK = Told("fieldpost_site_disk_free_bytes", "Free space on a site's disk, as it reports.", ("site",))
SITE_CLOCK = Told(
    "fieldpost_site_clock_offset_seconds", "By how much a site's clock was ahead when it reported.", ("site",)
)
SITE_INTENTS = Told("fieldpost_site_open_intents", "Intents that wait for a site or for its answer.", ("site",))
ISSUES = Told("fieldpost_issues", "Open issues, as the Health page lists them.", ("code", "severity"))
OF_SITES = (
    SITE_LINK,
    SITE_AGE,
    SITE_DEPTH,
    SITE_OLDEST,
    SITE_PARKED,
    SITE_REJECTED,
    SITE_DISK,
    SITE_CLOCK,
    SITE_INTENTS,
)


def of_kpi(kpi: Kpi) -> tuple[Told, Told]:
    """The metric of all sites together, and that of each; the unit is spelled out, as Prometheus has it."""
    name = kpi.name.removesuffix("_s") + "_seconds" if kpi.name.endswith("_s") else kpi.name
    of_site = Told(f"fieldpost_site_{name}", f"The same of one site: {kpi.help}", ("site",))
    return Told(f"fieldpost_{name}", kpi.help), of_site


TOLD: tuple[Told, ...] = (
    STORE_UP,
    *(told for kpi in KPIS for told in of_kpi(kpi)),
    NODES,
    LEASE,
    BREAKER,
    ISSUES,
    *OF_SITES,
)
"""All that is read from the store."""


def _of_kpis(snapshot: Snapshot) -> Iterator[Metric]:
    total = snapshot.total
    for kpi in KPIS:
        of_all, of_site = of_kpi(kpi)
        yield _gauge(of_all, [((), total[kpi.name])])
        yield _gauge(of_site, [((site,), figures[kpi.name]) for site, figures in sorted(snapshot.of_sites.items())])


def _of_centre(centre: Centre) -> Iterator[Metric]:
    states = [node.state for node in centre.nodes]
    yield _gauge(NODES, [((state.value,), states.count(state)) for state in NodeState])
    yield _gauge(
        LEASE,
        [
            ((lease.name, lease.owner), (lease.lease_until - centre.as_of).total_seconds())
            for lease in centre.leases.values()
        ],
    )


def _of_breakers(found: Iterable[Breaker]) -> Metric:
    return _gauge(BREAKER, [((b.key, state.value), b.state is state) for b in found for state in BreakerState])


def _of_fleet(fleet: Fleet) -> Iterator[Metric]:
    """Of sites that never reported there is nothing to tell but that they are offline."""
    reports = [(state.record.name, state.health) for state in fleet.sites]
    heard = [(site, health, health.report) for site, health in reports if health is not None]
    links = [((s.record.name, state.value), s.link is state) for s in fleet.sites for state in LinkState]
    yield _gauge(SITE_LINK, links)
    yield _gauge(SITE_AGE, [((site,), (fleet.as_of - h.received_at).total_seconds()) for site, h, _ in heard])
    depths = [((site, category), count) for site, _, r in heard for category, count in r.backlog.items()]
    yield _gauge(SITE_DEPTH, depths)
    yield _gauge(SITE_OLDEST, [((site,), r.oldest_age_s) for site, _, r in heard])
    yield _gauge(SITE_PARKED, [((site,), r.parked) for site, _, r in heard])
    yield _gauge(SITE_REJECTED, [((site,), r.rejected) for site, _, r in heard])
    disks = [((site,), r.disk_free_bytes) for site, _, r in heard if r.disk_free_bytes is not None]
    yield _gauge(SITE_DISK, disks)
    yield _gauge(SITE_CLOCK, [((site,), h.clock_offset_s) for site, h, _ in heard])
    yield _gauge(SITE_INTENTS, [((s.record.name,), s.open_intents) for s in fleet.sites])


def _of_issues(issues: Sequence[Issue]) -> Metric:
    """Every code and severity, so that an alert sees an issue end."""
    found = Counter((issue.code.value, issue.severity.value) for issue in issues)
    keys = [(code.value, severity.value) for code in IssueCode for severity in IssueSeverity]
    return _gauge(ISSUES, [(key, found[key]) for key in keys])


def _gauge(told: Told, samples: Sequence[tuple[tuple[str, ...], float]]) -> Metric:
    family = GaugeMetricFamily(told.name, told.help, labels=told.labels)
    for labels, value in samples:
        family.add_metric(labels, float(value))
    return family


class _Families:
    """Families that are made already, as a registry wants to be told of them."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
