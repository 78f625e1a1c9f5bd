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
from fieldpost.core.kpi import NOTHING, Snapshot, Thresholds
from fieldpost.core.notification import Status

COUNT_MAX = 10_000
"""The limit of a count per status: a year of history has millions of rows, and nobody reads that many digits."""

_COUNTS = """source_site_id as site, count(*) as queue_depth,
    count(case when cycle_started_at < :stuck_before then 1 end) as stuck, min(created_at) as oldest_at"""

# No index has the lease, so that a claim updates none: the row itself shows whether it is overdue. SQLite scans the
# index once and reads only rows that may be overdue; PostgreSQL would read all rows with that query.
_waiting = Statement(
    f"""
    select waiting.*, coalesce(late.overdue, 0) as overdue
    from (select {_COUNTS} from notifications where {IS_WAITING} group by source_site_id) as waiting
    left join (
        select source_site_id as site, count(*) as overdue from notifications where {IS_OVERDUE}
        group by source_site_id
    ) as late on late.site = waiting.site
    """,
    sqlite=f"""
    select {_COUNTS}, count(case when {IS_OVERDUE} then 1 end) as overdue
    from notifications where {IS_WAITING} group by source_site_id
    """,
    result={
        "site": Text,
        "queue_depth": BigInteger,
        "stuck": BigInteger,
        "oldest_at": Moment,
        "overdue": BigInteger,
    },
)
_parked = Statement(
    f"""
    select source_site_id as site, count(*) as parked from notifications
    where {IS_UNDELIVERED} and status = 'parked' group by source_site_id
    """,
    result={"site": Text, "parked": BigInteger},
)
_delivered = Statement(
    """
    select source_site_id as site, count(*) as delivered_last_interval
    from notifications where terminal_at > :delivered_after and status = 'delivered' group by source_site_id
    """,
    result={"site": Text, "delivered_last_interval": BigInteger},
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

    for row in _waiting.run(conn, stuck_before=as_of - by.stuck_after, overdue_before=as_of - by.overdue_after):
        figures(row.site).update(queue_depth=row.queue_depth, stuck=row.stuck, overdue=row.overdue)
        figures(row.site)["oldest_pending_age_s"] = (as_of - row.oldest_at).total_seconds()
    for row in _parked.run(conn):
        figures(row.site)["parked"] = row.parked
    for row in _delivered.run(conn, delivered_after=as_of - by.delivered_window):
        figures(row.site)["delivered_last_interval"] = row.delivered_last_interval
    for site, told in cached_calls.figures(conn, as_of, by):
        figures(site).update(told)
    return Snapshot(as_of, found)


def count_by_status(conn: Connection) -> Mapping[Status, int]:
    """The number of notifications in each status, counted up to COUNT_MAX."""
    return {Status(row.status): row.size for row in _by_status.run(conn)}
