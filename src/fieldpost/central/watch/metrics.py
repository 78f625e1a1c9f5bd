"""What a node counts of its own work, for Prometheus. It is the `core.meter.Meter` that ingest and dispatch are handed.

Counters begin at 0 when the process starts, as Prometheus expects. What concerns the whole centre (KPIs, leases,
breakers, nodes) is not counted here but read from the store at each scrape: see `exposition.py`.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from fieldpost.clock import Clock, SystemClock

_SWEEP_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_ATTEMPT_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900)


class Metrics:
    """One for a process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._submitted = Counter(
            "fieldpost_submitted", "Items that senders submitted, by verdict.", ["verdict"], registry=self.registry
        )
        self._claims = Counter(
            "fieldpost_claims", "Rows that this node claimed, by lane.", ["lane"], registry=self.registry
        )
        self._attempts = Counter(
            "fieldpost_attempts",
            "Attempts of this node that came to an end, by type and outcome.",
            ["type", "outcome"],
            registry=self.registry,
        )
        self._attempt_s = Histogram(
            "fieldpost_attempt_seconds",
            "How long attempts took, from the claim to the outcome, by type.",
            ["type"],
            buckets=_ATTEMPT_S,
            registry=self.registry,
        )
        self._late = Counter(
            "fieldpost_late_results",
            "Outcomes that came after their claim was lost and changed nothing.",
            registry=self.registry,
        )
        self._in_flight = Gauge(
            "fieldpost_in_flight", "Attempts that are under way on this node now.", registry=self.registry
        )
        self._sweep_s = Histogram(
            "fieldpost_sweep_seconds",
            "How long the dispatcher's sweeps took, the wait for free slots included.",
            buckets=_SWEEP_S,
            registry=self.registry,
        )
        self.in_flight = 0
        self._seen_at = self._clock.monotonic()

    @property
    def silent_s(self) -> float:
        """For how long nothing was heard of the dispatcher; from the start on, if nothing was yet."""
        return self._clock.monotonic() - self._seen_at

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
