"""The metrics page for Prometheus: this node's own counters, and figures of the whole installation from the store.

Without the store a scrape returns the metrics of the node alone, and `fieldpost_store_up` is 0.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import breakers
from fieldpost.central.watch.issue import Issue, IssueCode, IssueSeverity
from fieldpost.central.watch.kpis import Kpis
from fieldpost.central.watch.metrics import Metrics
from fieldpost.central.watch.nodes import Centre, Nodes, NodeState
from fieldpost.central.watch.overview import OverviewReader
from fieldpost.central.watch.sites import Fleet, SiteReader
from fieldpost.core.delivery.breaker import Breaker, BreakerState
from fieldpost.core.errors import Unavailable
from fieldpost.core.events.subscription import SUBSCRIPTION_KEY
from fieldpost.core.kpi import KPIS, Kpi, Snapshot
from fieldpost.core.sites.health import LinkState, PairReport, SiteHealth


class Exposition:
    """The metrics page of one node."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(
        self, store: Store, metrics: Metrics, kpis: Kpis, nodes: Nodes, sites: SiteReader, overview: OverviewReader
    ) -> None:
        self._store = store
        self._metrics = metrics
        self.connection_refused = metrics.connection_refused
        """Counts a connection that was refused or closed at a limit."""
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
            found = await self._store.read(breakers.of_channels_and_lists)
            receivers = await self._store.read(breakers.failing_counts, SUBSCRIPTION_KEY)
            fleet, overview = await self._sites.all(), await self._overview.now()
        except Unavailable:
            return [_gauge(STORE_UP, [((), 0)])]
        return [
            _gauge(STORE_UP, [((), 1)]),
            *_of_kpis(snapshot),
            *_of_centre(centre),
            _of_breakers(found.values()),
            _gauge(RECEIVERS, [((health,), count) for health, count in receivers.items()]),
            *_of_fleet(fleet),
            _of_issues(overview.issues),
        ]


@dataclass(frozen=True, slots=True)
class StoreMetric:
    """A metric that is read from the store."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


STORE_UP = StoreMetric("fieldpost_store_up", "1 when the central store could be read for this scrape.")
NODES = StoreMetric("fieldpost_nodes", "Known nodes of central, by state.", ("state",))
LEASE = StoreMetric(
    "fieldpost_lease_remaining_seconds", "Seconds until a lease expires; below 0 it has expired.", ("name", "owner")
)
BREAKER = StoreMetric(
    "fieldpost_breaker_state",
    "1 for the present state of a breaker of a channel or list, 0 for the others.",
    ("breaker", "state"),
)
RECEIVERS = StoreMetric(
    "fieldpost_unhealthy_receivers",
    "Subscriptions whose receivers fail: monitored (failures are counted) or blocked.",
    ("health",),
)
SITE_LINK = StoreMetric(
    "fieldpost_site_link_state", "1 for the present state of a site, 0 for the others.", ("site", "state")
)
SITE_DEPTH = StoreMetric(
    "fieldpost_site_buffer_depth", "Messages in a site's buffer, as reported, by category.", ("site", "category")
)
OF_REPORT: Mapping[StoreMetric, Callable[[SiteHealth, datetime], float | None]] = {
    StoreMetric("fieldpost_site_report_age_seconds", "Age of the newest health report of a site.", ("site",)): (
        lambda health, as_of: (as_of - health.received_at).total_seconds()
    ),
    StoreMetric(
        "fieldpost_site_buffer_oldest_seconds", "Age of the oldest waiting message of a site, as reported.", ("site",)
    ): lambda health, _: health.report.oldest_age_s,
    StoreMetric("fieldpost_site_buffer_parked", "Cached calls parked at a site, as reported.", ("site",)): (
        lambda health, _: health.report.parked
    ),
    StoreMetric(
        "fieldpost_site_buffer_rejected", "Notifications in a site's rejected box, as reported.", ("site",)
    ): lambda health, _: health.report.rejected,
    StoreMetric("fieldpost_site_disk_free_bytes", "Free space on a site's disk, as reported.", ("site",)): (
        lambda health, _: health.report.disk_free_bytes
    ),
    StoreMetric(
        "fieldpost_site_clock_offset_seconds", "How far a site's clock was ahead at its newest report.", ("site",)
    ): lambda health, _: health.clock_offset_s,
}
"""Metrics of one figure per site that has reported."""
NODE_LINK = StoreMetric(
    "fieldpost_site_node_link_state",
    "1 for the present state of a node of a pair, 0 for the others.",
    ("site", "node", "state"),
)
NODE_LEADS = StoreMetric(
    "fieldpost_site_node_leads",
    "1 for the leader of a pair, the node with the highest epoch, else 0.",
    ("site", "node"),
)
PAIR_EPOCH = StoreMetric("fieldpost_site_epoch", "Highest epoch of a pair; grows with each switch.", ("site",))
OF_LEADER: Mapping[StoreMetric, Callable[[PairReport], float]] = {
    StoreMetric(
        "fieldpost_site_pair_lag_seconds", "Age of the oldest change that the standby lacks, as reported.", ("site",)
    ): lambda pair: pair.lag_s,
    StoreMetric("fieldpost_site_pair_lag_changes", "Changes that the standby lacks, as reported.", ("site",)): (
        lambda pair: pair.lag_changes
    ),
}
"""Metrics of one figure per pair whose leader has reported."""
SITE_INTENTS = StoreMetric("fieldpost_site_open_intents", "Intents that a site has not answered yet.", ("site",))
ISSUES = StoreMetric("fieldpost_issues", "Open issues, as the Health page lists them.", ("code", "severity"))


def of_kpi(kpi: Kpi) -> tuple[StoreMetric, StoreMetric]:
    """The metric of all sites together and the one by site, with the unit spelled out as Prometheus recommends."""
    name = kpi.name.removesuffix("_s") + "_seconds" if kpi.name.endswith("_s") else kpi.name
    of_site = StoreMetric(f"fieldpost_site_{name}", f"By site: {kpi.help}", ("site",))
    return StoreMetric(f"fieldpost_{name}", kpi.help), of_site


STORE_METRICS: tuple[StoreMetric, ...] = (
    STORE_UP,
    *(metric for kpi in KPIS for metric in of_kpi(kpi)),
    NODES,
    LEASE,
    BREAKER,
    RECEIVERS,
    ISSUES,
    SITE_LINK,
    SITE_DEPTH,
    *OF_REPORT,
    SITE_INTENTS,
    NODE_LINK,
    NODE_LEADS,
    PAIR_EPOCH,
    *OF_LEADER,
)
"""All metrics that are read from the store."""


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
    """A site that never reported has only its link state."""
    reporting = [(state.record.name, state.health) for state in fleet.sites if state.health is not None]
    links = [((s.record.name, state.value), s.link is state) for s in fleet.sites for state in LinkState]
    yield _gauge(SITE_LINK, links)
    depths = [((site, kind), count) for site, health in reporting for kind, count in health.report.backlog.items()]
    yield _gauge(SITE_DEPTH, depths)
    for metric, value_of in OF_REPORT.items():
        values = [(site, value_of(health, fleet.as_of)) for site, health in reporting]
        yield _gauge(metric, [((site,), value) for site, value in values if value is not None])
    yield _gauge(SITE_INTENTS, [((s.record.name,), s.open_intents) for s in fleet.sites])
    pairs = [site for site in fleet.sites if site.is_pair]
    nodes = [(site.record.name, node) for site in pairs for node in site.nodes]
    yield _gauge(NODE_LINK, [((s, str(n.node), state.value), n.link is state) for s, n in nodes for state in LinkState])
    yield _gauge(NODE_LEADS, [((site, str(node.node)), node.is_leader) for site, node in nodes])
    yield _gauge(PAIR_EPOCH, [((site.record.name,), site.epoch or 0) for site in pairs])
    leading = [(site, node.pair) for site, node in nodes if node.is_leader and node.pair]
    for metric, figure_of in OF_LEADER.items():
        yield _gauge(metric, [((site,), figure_of(pair)) for site, pair in leading])


def _of_issues(issues: Sequence[Issue]) -> Metric:
    """Every code and severity, so that an alert sees an issue end."""
    found = Counter((issue.code.value, issue.severity.value) for issue in issues)
    keys = [(code.value, severity.value) for code in IssueCode for severity in IssueSeverity]
    return _gauge(ISSUES, [(key, found[key]) for key in keys])


def _gauge(metric: StoreMetric, samples: Sequence[tuple[tuple[str, ...], float]]) -> Metric:
    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, float(value))
    return family


class _Families:
    """A collector of families that exist already."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
