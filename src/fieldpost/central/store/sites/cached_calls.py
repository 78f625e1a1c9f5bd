"""The mirror of the sites' cached calls, written only from their reports.

A known row is replaced only by a report of a later round, or of a higher version in the same round
(`core.sites.call_mirror`). Other reports change nothing, so that a batch may arrive twice or late.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Connection, Row, Text, select, text

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.purging import DatedTable
from fieldpost.central.store.engine.records import Records, before
from fieldpost.central.store.engine.statement import ParameterKind, Statement
from fieldpost.central.store.schema.site_tables import IS_LIVE_CALL, IS_PARKED_CALL, cached_calls
from fieldpost.core.ids import is_id
from fieldpost.core.kpi import Thresholds
from fieldpost.core.search.call_filter import CallFilter
from fieldpost.core.search.page_key import PageKey
from fieldpost.core.search.tokens import tokenize
from fieldpost.core.sites.call_mirror import CachedCall, by_central
from fieldpost.core.sites.message import CallReport

WALK_MAX = 5000
"""How many rows one search for tokens in a target scans."""
WALK_ROWS = 500

_REPORTS = Records(cached_calls, CallReport)
_REPORTED: Mapping[str, ParameterKind] = {**_REPORTS.kinds, "begun_at": "moment", "ended_at": "moment"}
_REPLACED = [name for name in _REPORTED if name not in ("call_id", "begun_at")]

_apply = Statement(
    f"""
    insert into cached_calls (site, incarnation, round, first_seen_at, received_at, {", ".join(_REPORTED)})
    select :site, :incarnation, :round, {{now}}, {{now}}, {", ".join(f"u.{name}" for name in _REPORTED)}
    from {{rows}} where true order by u.call_id
    on conflict (site, call_id) do update set incarnation = excluded.incarnation, round = excluded.round,
        received_at = excluded.received_at, gone_at = null,
        {", ".join(f"{name} = excluded.{name}" for name in _REPLACED)}
    where cached_calls.round < excluded.round
        or (cached_calls.round = excluded.round and cached_calls.version < excluded.version)
    returning call_id
    """,
    rows=_REPORTED,
    result={"call_id": Id},
)
_mark_missing = Statement(
    """
    update cached_calls set gone_at = {now}
    where site = :site and round < :round and gone_at is null and status in ('pending', 'retrying', 'parked')
    returning call_id
    """,
    result={"call_id": Id},
)

_live = Statement(
    f"""
    select site, count(*) as buffered, count(case when begun_at < :stuck_before then 1 end) as stuck,
        min(begun_at) as oldest_at
    from cached_calls where {IS_LIVE_CALL} group by site
    """,
    result={"site": Text, "buffered": BigInteger, "stuck": BigInteger, "oldest_at": Moment},
)
_parked = Statement(
    f"select site, count(*) as parked from cached_calls where {IS_PARKED_CALL} group by site",
    result={"site": Text, "parked": BigInteger},
)
_ended = Statement(
    """
    select site, count(case when status = 'delivered' then 1 end) as delivered,
        count(case when status = 'failed' then 1 end) as failed
    from cached_calls where ended_at > :ended_after group by site
    """,
    result={"site": Text, "delivered": BigInteger, "failed": BigInteger},
)

# By the primary key, which starts with the site: one probe per site.
_sites_of = Statement(
    "select c.site from sites s join cached_calls c on c.site = s.site_name where c.call_id = :call_id",
    result={"site": Text},
)

_these = Statement(
    f"""
    select {", ".join(f"c.{column.name}" for column in cached_calls.c)} from {{rows}}
    join cached_calls c on c.site = u.site and c.call_id = u.call_id
    order by c.first_seen_at desc, c.call_id desc
    """,
    rows={"site": "text", "call_id": "id"},
    result={column.name: column.type for column in cached_calls.c},
)

ENDED = DatedTable("cached_calls", "ended_at")
"""Ended calls, by central's clock: purged like terminal notifications."""
GONE = DatedTable("cached_calls", "gone_at")
"""Calls that their sites no longer have."""


def apply(
    conn: Connection,
    site: str,
    incarnation: str,
    round: int,
    reports: Sequence[CallReport],
    *,
    sent_at: datetime | None,
    now: datetime,
) -> int:
    """Apply these reports of the site, at most one per call; how many changed a row."""
    rows = [_row(report, sent_at, now) for report in reports]
    return len(_apply.run(conn, rows, site=site, incarnation=incarnation, round=round, now=now)) if rows else 0


def mark_missing(conn: Connection, site: str, round: int, *, now: datetime) -> int:
    """Mark live calls that are missing from this complete round: the site no longer has them. How many."""
    return len(_mark_missing.run(conn, site=site, round=round, now=now))


def figures(conn: Connection, as_of: datetime, by: Thresholds) -> Iterator[tuple[str, dict[str, float]]]:
    """The KPIs of cached calls, in parts, for the sites that have any."""
    for row in _live.run(conn, stuck_before=as_of - by.stuck_after):
        age_s = (as_of - row.oldest_at).total_seconds()
        counts = {"calls_buffered": row.buffered, "calls_stuck": row.stuck, "calls_oldest_pending_age_s": age_s}
        yield row.site, counts
    for row in _parked.run(conn):
        yield row.site, {"calls_parked": row.parked}
    for row in _ended.run(conn, ended_after=as_of - by.delivered_window):
        yield row.site, {"calls_delivered_last_interval": row.delivered, "calls_failed_last_interval": row.failed}


def get(conn: Connection, site: str, call_id: str) -> CachedCall | None:
    if not is_id(call_id):
        return None
    query = cached_calls.select().where(cached_calls.c.site == site, cached_calls.c.call_id == call_id)
    row = conn.execute(query).first()
    return _call(row) if row else None


def these(conn: Connection, chosen: Sequence[tuple[str, str]]) -> list[CachedCall]:
    """The calls with these (site, id) that the mirror has."""
    return [_call(row) for row in _these.run(conn, list(chosen))] if chosen else []


def sites_of(conn: Connection, call_id: str) -> list[str]:
    """The sites that reported a call with this id: one or none, unless an id was made twice."""
    return [row.site for row in _sites_of.run(conn, call_id=call_id)] if is_id(call_id) else []


def find(
    conn: Connection, wanted: CallFilter, *, limit: int, key: PageKey | None, stuck_before: datetime | None = None
) -> tuple[list[CachedCall], PageKey | None]:
    """Matches, newest first, and the position to continue from, None at the end. A short page may have a next one."""
    found: list[CachedCall] = []
    asked = set(tokenize(wanted.target)) if wanted.target is not None else set()
    place, walked = key, 0
    while walked < WALK_MAX:
        size = limit + 1 if not asked else WALK_ROWS
        rows = conn.execute(_query(wanted, place, stuck_before).limit(size)).all()
        for row in rows:
            if not asked or asked <= set(tokenize(row.target_summary)):
                if len(found) == limit:
                    return found, place
                found.append(_call(row))
            place = row.first_seen_at, row.call_id
        if len(rows) < size:
            return found, None
        walked += len(rows)
    return found, place


def _query(wanted: CallFilter, key: PageKey | None, stuck_before: datetime | None) -> Any:
    c = cached_calls.c
    conditions: list[Any] = [
        c.site == wanted.site if wanted.site is not None else None,
        c.category == wanted.category.value if wanted.category is not None else None,
        c.status.in_([status.value for status in wanted.statuses]) if wanted.statuses else None,
        c.first_seen_at >= wanted.since if wanted.since is not None else None,
        c.first_seen_at < wanted.until if wanted.until is not None else None,
        before(c.first_seen_at, c.call_id, key) if key is not None else None,
    ]
    if wanted.is_stuck:
        conditions += [text(IS_LIVE_CALL), c.begun_at < stuck_before]
    given = [condition for condition in conditions if condition is not None]
    return select(cached_calls).where(*given).order_by(c.first_seen_at.desc(), c.call_id.desc())


def _row(report: CallReport, sent_at: datetime | None, now: datetime) -> tuple[Any, ...]:
    begun_at = by_central(report.created_at, sent_at, now)
    ended_at = by_central(report.terminal_at, sent_at, now) if report.status.is_terminal else None
    return *_REPORTS.values(report).values(), begun_at, ended_at


def _call(row: Row[Any]) -> CachedCall:
    return CachedCall(
        site=row.site,
        report=_REPORTS.of(row),
        first_seen_at=row.first_seen_at,
        received_at=row.received_at,
        begun_at=row.begun_at,
        ended_at=row.ended_at,
        gone_at=row.gone_at,
    )
