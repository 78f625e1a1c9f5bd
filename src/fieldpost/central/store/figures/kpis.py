"""The KPIs of `core.kpi` as SQL, per source site; the totals are derived from them.

The queries read partial indexes on live, parked and terminal rows and never group over history: the cost depends on
the queue and on the deliveries within the window, not on the size of the table. The index of terminal rows is ordered
by the time they became terminal, which for a delivered row is its delivery.
"""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import BigInteger, Connection, Text, select

from fieldpost.central.store.engine.column_types import Moment
from fieldpost.central.store.engine.statement import Statement, database_time
from fieldpost.central.store.notifications.due import IS_OVERDUE
from fieldpost.central.store.schema.notification_tables import IS_TERMINAL, IS_UNDELIVERED, IS_WAITING
from fieldpost.central.store.schema.site_tables import sites
from fieldpost.central.store.sites import cached_calls
from fieldpost.core.kpi import NOTHING, WEBHOOKS, Snapshot, Thresholds
from fieldpost.core.notification import Status

COUNT_MAX = 10_000
"""The limit of a count per status: a year of history has millions of rows, and nobody reads that many digits."""

_LATE = "cycle_started_at < :stuck_before"
_KINDS = {
    "": ("type <> 'webhook'", f"{_LATE} and (held_by is null or held_by not like 'rate%')"),
    WEBHOOKS: ("type = 'webhook'", f"{_LATE} and held_by is null and due_at <= :as_of"),
}
"""For each kind of notifications the condition, and the rule by which a waiting one is stuck."""


def _count(condition: str, name: str) -> str:
    return f"count(case when {condition} then 1 end) as {name}"


_COUNTS = "source_site_id as site, " + ", ".join(
    f"{_count(is_of_kind, prefix + 'queue_depth')}, {_count(f'{is_of_kind} and {is_stuck}', prefix + 'stuck')},"
    f" min(case when {is_of_kind} then created_at end) as {prefix}oldest_at"
    for prefix, (is_of_kind, is_stuck) in _KINDS.items()
)


def _counts_of(name: str, also: str = "") -> str:
    return ", ".join(_count(is_of_kind + also, prefix + name) for prefix, (is_of_kind, _) in _KINDS.items())


# No index has the lease, so that a claim updates none: the row itself shows whether it is overdue. SQLite scans the
# index once and reads only rows that may be overdue; PostgreSQL would read all rows with that query.
_waiting = Statement(
    f"""
    select waiting.*, coalesce(late.overdue, 0) as overdue, coalesce(late.webhooks_overdue, 0) as webhooks_overdue
    from (select {_COUNTS} from notifications where {IS_WAITING} group by source_site_id) as waiting
    left join (
        select source_site_id as site, {_counts_of("overdue")} from notifications where {IS_OVERDUE}
        group by source_site_id
    ) as late on late.site = waiting.site
    """,
    sqlite=f"""
    select {_COUNTS}, {_counts_of("overdue", f" and {IS_OVERDUE}")}
    from notifications where {IS_WAITING} group by source_site_id
    """,
    result={"site": Text}
    | {prefix + name: BigInteger for prefix in _KINDS for name in ("queue_depth", "stuck", "overdue")}
    | {prefix + "oldest_at": Moment for prefix in _KINDS},
)
_parked = Statement(
    f"""
    select source_site_id as site, {_counts_of("parked")} from notifications
    where {IS_UNDELIVERED} and status = 'parked' group by source_site_id
    """,
    result={"site": Text} | {prefix + "parked": BigInteger for prefix in _KINDS},
)
_delivered = Statement(
    f"""
    select source_site_id as site, {_counts_of("delivered_last_interval")}
    from notifications where terminal_at > :delivered_after and status = 'delivered' group by source_site_id
    """,
    result={"site": Text} | {prefix + "delivered_last_interval": BigInteger for prefix in _KINDS},
)

# Each status in its own index, whose condition is repeated literally, so that the planner uses it.
_by_status = Statement(
    " union all ".join(
        f"select '{status.value}' as status, count(*) as size from (select 1 from notifications"
        f" where {IS_TERMINAL if status is Status.DELIVERED else IS_UNDELIVERED} and status = '{status.value}'"
        f" limit {COUNT_MAX}) as {status.value}_rows"
        for status in Status
    ),
    result={"status": Text, "size": BigInteger},
)


def snapshot(conn: Connection, by: Thresholds, *, now: datetime | None) -> Snapshot:
    """All KPIs of all sites at one time, including known sites without rows."""
    as_of = database_time(conn, now)
    found: dict[str, dict[str, float]] = {
        site: dict(NOTHING) for site in conn.execute(select(sites.c.site_name)).scalars()
    }

    def figures(site: str) -> dict[str, float]:
        return found.setdefault(site, dict(NOTHING))

    waiting = _waiting.run(
        conn, as_of=as_of, stuck_before=as_of - by.stuck_after, overdue_before=as_of - by.overdue_after
    )
    parked = _parked.run(conn)
    delivered = _delivered.run(conn, delivered_after=as_of - by.delivered_window)
    for row in (*waiting, *parked, *delivered):
        for name, value in row._mapping.items():
            if isinstance(value, datetime):
                figures(row.site)[name.replace("oldest_at", "oldest_pending_age_s")] = (as_of - value).total_seconds()
            elif name in NOTHING:
                figures(row.site)[name] = value
    for site, counts in cached_calls.figures(conn, as_of, by):
        figures(site).update(counts)
    return Snapshot(as_of, found)


def count_by_status(conn: Connection) -> Mapping[Status, int]:
    """The number of notifications in each status, counted up to COUNT_MAX."""
    return {Status(row.status): row.size for row in _by_status.run(conn)}
