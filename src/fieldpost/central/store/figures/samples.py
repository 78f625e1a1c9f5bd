"""The history of the KPIs: one row of values per sample, for all sites together and for each site.

A site whose values are all 0 gets no row, which keeps the history of many quiet sites small: at the time of a total, a
site without a row had only zeros. The values are JSON, so that a new KPI needs no migration.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Float, insert
from sqlalchemy.dialects.postgresql import insert as insert_postgresql
from sqlalchemy.dialects.sqlite import insert as insert_sqlite

from fieldpost.central.store.engine.column_types import Moment
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.schema.node_tables import samples
from fieldpost.core.kpi import KPIS, KpiValues, Snapshot

ALL_SITES = ""

# The largest value per step, so that a peak of one minute is still visible in the chart of a month.
_history = Statement(
    """
    select min(t.taken_at) as at,
        max(coalesce(cast(s.figures ->> cast(:kpi as text) as double precision), 0)) as value
    from samples t left join samples s on s.site = :site and s.taken_at = t.taken_at
    where t.site = '' and t.taken_at >= :begin and t.taken_at < :end
    group by floor(extract(epoch from t.taken_at - cast(:begin as timestamptz)) / cast(:step_s as double precision))
    order by 1
    """,
    sqlite="""
    select min(t.taken_at) as at, max(coalesce(s.figures ->> :kpi, 0)) as value
    from samples t left join samples s on s.site = :site and s.taken_at = t.taken_at
    where t.site = '' and t.taken_at >= :begin and t.taken_at < :end
    group by (t.taken_at - :begin) / (:step_s * 1000000)
    order by 1
    """,
    result={"at": Moment, "value": Float},
)


_OF_NOTIFICATIONS = tuple(kpi.name for kpi in KPIS if kpi.formula is not None)


def _trends(largest: str) -> str:
    """All KPIs in one pass over the totals; samples from before a KPI existed count as 0."""
    columns = ", ".join(f"coalesce(max({largest.format(name)}), 0) as {name}" for name in _OF_NOTIFICATIONS)
    return f"select min(taken_at) as at, {columns} from samples"


_trends_of_all = Statement(
    _trends("cast(figures ->> '{}' as double precision)")
    + """
    where site = '' and taken_at >= :begin and taken_at < :end
    group by floor(extract(epoch from taken_at - cast(:begin as timestamptz)) / cast(:step_s as double precision))
    order by 1
    """,
    sqlite=_trends("figures ->> '{}'")
    + """
    where site = '' and taken_at >= :begin and taken_at < :end
    group by (taken_at - :begin) / (:step_s * 1000000)
    order by 1
    """,
    result={"at": Moment} | {name: Float() for name in _OF_NOTIFICATIONS},
)


def add(conn: Connection, taken_at: datetime, snapshot: Snapshot) -> bool:
    """Store a snapshot under this time; False if there is one already."""
    add_first = insert_postgresql(samples) if conn.dialect.name == "postgresql" else insert_sqlite(samples)
    first = add_first.values(_row(ALL_SITES, taken_at, snapshot.total)).on_conflict_do_nothing()
    if conn.execute(first).rowcount == 0:
        return False
    of_sites = [_row(site, taken_at, figures) for site, figures in snapshot.of_sites.items() if any(figures.values())]
    if of_sites:
        conn.execute(insert(samples), of_sites)
    return True


def history(
    conn: Connection, kpi: str, site: str, *, begin: datetime, end: datetime, step: timedelta
) -> Sequence[tuple[datetime, float]]:
    """The values of a KPI from `begin` to before `end`: the largest value of each step that has samples."""
    found = _history.run(conn, kpi=kpi, site=site, begin=begin, end=end, step_s=max(int(step.total_seconds()), 1))
    return [(row.at, row.value) for row in found]


def trends(
    conn: Connection, *, begin: datetime, end: datetime, step: timedelta
) -> Mapping[str, Sequence[tuple[datetime, float]]]:
    """`history` of every KPI of notifications, for all sites together."""
    found = _trends_of_all.run(conn, begin=begin, end=end, step_s=max(int(step.total_seconds()), 1))
    return {name: [(row.at, getattr(row, name)) for row in found] for name in _OF_NOTIFICATIONS}


def _row(site: str, taken_at: datetime, figures: KpiValues) -> dict[str, Any]:
    return {"site": site, "taken_at": taken_at, "figures": dict(figures)}
