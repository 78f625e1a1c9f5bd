"""Readiness checks of this node: store, schema, write-ahead log, dispatcher, leader; and counts by status."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection

from fieldpost.central.secrets.keyring import Keyring
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.figures import kpis
from fieldpost.central.store.notifications import audit_seals
from fieldpost.central.store.schema.migrate import SchemaState, schema_of
from fieldpost.central.watch.metrics import Metrics
from fieldpost.central.watch.nodes import Centre, read_nodes
from fieldpost.central.watch.shared_read import SharedRead
from fieldpost.clock import Clock
from fieldpost.core.checks import Check, CheckVerdict, Diagnosis
from fieldpost.core.errors import Unavailable
from fieldpost.core.lists import Channel
from fieldpost.core.notification import Status

COUNT_MAX = kpis.COUNT_MAX

SILENT_S = 30.0
"""How long an idle dispatcher may be silent: this, or three sweeps if that is longer."""
FLIGHT_S = 20 * 60.0
"""How long a dispatcher that waits for attempts may be silent: no attempt lasts longer."""

UNSEALED_MAX = timedelta(minutes=5)
LOG_BYTES_MAX = 256 * 1024**2
"""A longer write-ahead log of an embedded database is a warning."""


class HealthReader:
    """Checks central itself; `metrics` are the signs of life of this node's dispatcher, if it has one."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        keyring: Keyring | None = None,
        metrics: Metrics | None = None,
        sweep_interval_s: float = 10.0,
    ) -> None:
        self._store = store
        self._keyring = keyring or Keyring()
        self._metrics = metrics
        self._sweep_interval_s = sweep_interval_s
        self._counts = SharedRead(self._count, clock)

    async def readiness(self) -> Diagnosis:
        """Whether this node can work, with all checks."""
        try:
            schema, centre, unsealed_since = await self._store.read(_state, self._store)
            # A read-only or full store still answers reads; only its last write shows the failure.
            if (failure := self._store.last_failure) is not None:
                raise Unavailable(failure.code, failure.message, hint=failure.hint)
        except Unavailable as error:
            return Diagnosis((Check("store", CheckVerdict.FAILING, error.message), *self._dispatcher()))
        store = Check("store", CheckVerdict.OK, "the store answers and accepts writes")
        log_bytes = self._store.log_bytes()
        log = () if log_bytes is None else (log_check(log_bytes),)
        audit = audit_check(unsealed_since, centre.as_of)
        return Diagnosis((store, migrations_check(schema), *log, *self._dispatcher(), leader_check(centre), *audit))

    @property
    def store_failure(self) -> str | None:
        """Why the store refuses writes at present; None if it does not."""
        return None if self._store.last_failure is None else self._store.last_failure.message

    def key_problems(self, channels: Sequence[Channel]) -> list[str]:
        """Missing keys, and the channels whose secrets they would open."""
        found = [self._keyring.problem, *(self._keyring.problem_of(channel) for channel in channels)]
        return [problem for problem in found if problem is not None]

    async def counts(self) -> Mapping[Status, int]:
        """The number of notifications by status, at most moments old; COUNT_MAX means at least that number."""
        return await self._counts.get()

    async def _count(self) -> Mapping[Status, int]:
        return await self._store.read(kpis.count_by_status)

    def _dispatcher(self) -> tuple[Check, ...]:
        if self._metrics is None:
            return ()
        return (dispatcher_check(self._metrics.silent_s, self._metrics.in_flight, self._sweep_interval_s),)


def dispatcher_check(silent_s: float, in_flight: int, interval_s: float) -> Check:
    """Whether the dispatcher is alive: it sweeps, or waits for attempts in flight."""
    allowed_s = FLIGHT_S if in_flight else max(SILENT_S, 3 * interval_s)
    if silent_s > allowed_s:
        return Check("dispatcher", CheckVerdict.FAILING, f"the dispatcher has not swept for {silent_s:.0f} s")
    return Check("dispatcher", CheckVerdict.OK, f"{in_flight} in flight")


def log_check(size: int) -> Check:
    """SQLite cannot checkpoint its log past the oldest reader: one long read lets it grow without bound."""
    detail = f"the write-ahead log of the embedded database is {size // 1024**2} MiB long"
    if size > LOG_BYTES_MAX:
        return Check("log", CheckVerdict.WARNING, f"{detail}: a process keeps a read transaction open")
    return Check("log", CheckVerdict.OK, detail)


def leader_check(centre: Centre) -> Check:
    """Only purge and the history of the KPIs need a leader."""
    if centre.leader is None:
        return Check("leader", CheckVerdict.WARNING, "no node is the leader: purge and KPI history are paused")
    return Check("leader", CheckVerdict.OK, f"node {centre.leader} is the leader")


def migrations_check(schema: SchemaState) -> Check:
    """A newer schema belongs to a newer node, and this node continues beside it; an older one must be migrated."""
    if schema.current == schema.wanted:
        return Check("migrations", CheckVerdict.OK, f"the schema is {schema.current}")
    if schema.is_newer:
        return Check(
            "migrations", CheckVerdict.WARNING, f"the schema is {schema.current}, newer than that of this version"
        )
    if schema.is_unreleased:
        detail = f"the schema is {schema.current}, from before the first release: start with an empty database"
        return Check("migrations", CheckVerdict.FAILING, detail)
    detail = f"the schema is {schema.current or 'missing'}, this version needs {schema.wanted}"
    return Check("migrations", CheckVerdict.FAILING, detail)


def audit_check(unsealed_since: datetime | None, as_of: datetime) -> tuple[Check, ...]:
    """A warning if new audit entries are no longer sealed."""
    if unsealed_since is None or as_of - unsealed_since < UNSEALED_MAX:
        return ()
    since = f"{unsealed_since:%Y-%m-%d %H:%M:%S} UTC"
    return (Check("audit", CheckVerdict.WARNING, f"audit entries are not sealed since {since}: see central's log"),)


def _state(conn: Connection, store: Store) -> tuple[SchemaState, Centre, datetime | None]:
    return schema_of(conn), read_nodes(conn, now=store.now()), audit_seals.sealing_stopped_at(conn)
