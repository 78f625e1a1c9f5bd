"""Prometheus metrics of this node's own work: the `core.meter.Meter` of ingest and dispatch.

Counters start at 0 with the process, as Prometheus expects. Metrics of the whole installation (KPIs, leases, breakers,
nodes) are read from the store at each scrape: see `exposition.py`.
"""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from fieldpost.clock import Clock, SystemClock

_SWEEP_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_ATTEMPT_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900)


class Metrics:
    """The metrics of a process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        counter, histogram = partial(Counter, registry=self.registry), partial(Histogram, registry=self.registry)
        self._submitted = counter("fieldpost_submitted", "Items that senders submitted, by verdict.", ["verdict"])
        self._claims = counter("fieldpost_claims", "Rows that this node claimed, by lane.", ["lane"])
        self._attempts = counter(
            "fieldpost_attempts", "Finished attempts of this node, by type and outcome.", ["type", "outcome"]
        )
        help = "Duration of attempts, from the claim to the outcome, by type."
        self._attempt_s = histogram("fieldpost_attempt_seconds", help, ["type"], buckets=_ATTEMPT_S)
        help = "Outcomes that arrived after their claim was lost and changed nothing."
        self._late = counter("fieldpost_late_results", help)
        self._in_flight = Gauge("fieldpost_in_flight", "Attempts in progress on this node.", registry=self.registry)
        help = "Duration of the dispatcher's sweeps, including the wait for free slots."
        self._sweep_s = histogram("fieldpost_sweep_seconds", help, buckets=_SWEEP_S)
        help = "Connections to this node that were refused or closed at a limit, by code."
        self._refused = counter("fieldpost_connections_refused", help, ["code"])
        self.in_flight = 0
        self._seen_at = self._clock.monotonic()

    @property
    def silent_s(self) -> float:
        """Seconds since the last sign of life of the dispatcher, or since the start."""
        return self._clock.monotonic() - self._seen_at

    def connection_refused(self, code: str) -> None:
        self._refused.labels(code).inc()

    def submitted(self, verdict: str, count: int) -> None:
        self._submitted.labels(verdict).inc(count)

    def claimed(self, lane: str, count: int) -> None:
        self._claims.labels(lane).inc(count)

    def flying(self, count: int) -> None:
        self.in_flight = count
        self._in_flight.set(count)
        self._seen_at = self._clock.monotonic()

    def finished(self, type: str, outcome: str, duration_s: float) -> None:
        self._attempts.labels(type, outcome).inc()
        self._attempt_s.labels(type).observe(duration_s)

    def late(self) -> None:
        self._late.inc()

    def swept(self, duration_s: float) -> None:
        self._sweep_s.observe(duration_s)
        self._seen_at = self._clock.monotonic()
