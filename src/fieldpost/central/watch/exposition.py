"""The text that Prometheus reads: this node's own counters, and what the store says of the whole centre.

A scrape works without the store too: then it tells of the node alone, and `fieldpost_store_up` is 0.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from fieldpost.central.store import breakers
from fieldpost.central.store.engine import Store
from fieldpost.central.watch.kpis import Kpis
from fieldpost.central.watch.metrics import Metrics
from fieldpost.central.watch.nodes import Centre, Nodes, NodeState
from fieldpost.core.breaker import Breaker, BreakerState
from fieldpost.core.errors import Unavailable
from fieldpost.core.kpi import KPIS, Kpi, Snapshot


class Exposition:
    """What one node exposes."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, store: Store, metrics: Metrics, kpis: Kpis, nodes: Nodes) -> None:
        self._store = store
        self._metrics = metrics
        self._kpis = kpis
        self._nodes = nodes

    async def text(self) -> str:
        registry = CollectorRegistry()
        registry.register(_Families(await self._families()))
        return (generate_latest(self._metrics.registry) + generate_latest(registry)).decode()

    async def _families(self) -> list[Metric]:
        try:
            snapshot, centre = await self._kpis.now(), await self._nodes.all()
            found = await self._store.read(breakers.load)
        except Unavailable:
            return [_gauge(STORE_UP, [((), 0)])]
        return [_gauge(STORE_UP, [((), 1)]), *_of_kpis(snapshot), *_of_centre(centre), _of_breakers(found.values())]


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


def of_kpi(kpi: Kpi) -> tuple[Told, Told]:
    """The metric of all sites together, and that of each; the unit is spelled out, as Prometheus has it."""
    name = kpi.name.removesuffix("_s") + "_seconds" if kpi.name.endswith("_s") else kpi.name
    of_site = Told(f"fieldpost_site_{name}", f"The same of one site: {kpi.help}", ("site",))
    return Told(f"fieldpost_{name}", kpi.help), of_site


TOLD: tuple[Told, ...] = (STORE_UP, *(told for kpi in KPIS for told in of_kpi(kpi)), NODES, LEASE, BREAKER)
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
