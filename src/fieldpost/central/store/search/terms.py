"""The search index of notifications. Terms are the words of the subject, the site, list, type and incident.

Theory of operation. A term has *places* (postings): arrival time and id of each notification with this term, packed
into 24 bytes that sort like the pair. Places are stored in chunks, newest first, each a row of `search_terms`, by day
and term.

Writing terms with each arrival would cost a third of the speed of ingest. So the transaction of an arrival only adds
one row per batch to `search_backlog`; `index` processes many batches at a time, which also makes a few large chunks
instead of many small ones. A search uses the terms for indexed rows and scans the rows themselves for the backlog
(`behind_since`), so it finds notifications that have just arrived.

The day comes first in the key: the index grows at its end, like the table, instead of everywhere, and days without
notifications are deleted at the other end (`purge`). The place of a purged notification finds no row. Chunks of
different sweeps may overlap in time; a place that occurs twice counts once.

The subject of a subscription's notification is the event's topic, the same on each of perhaps thousands of rows, so its
words are not indexed, and a search for words leaves such rows out: events are found by topic.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Integer, Row, Text

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.purging import PurgedBatch, PurgeRange
from fieldpost.central.store.engine.statement import ParameterKind, Statement
from fieldpost.core.notification import NotificationKind
from fieldpost.core.search.notification_filter import Filter
from fieldpost.core.search.page_key import PageKey
from fieldpost.core.search.tokens import tokenize
from fieldpost.core.times import from_microseconds, to_microseconds

PACKED = struct.Struct(">Q16s")
CHUNK_PLACES = 64
"""A chunk fits in a page of PostgreSQL, uncompressed."""
_BATCHES = 1000
DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class SearchBacklog:
    """The rows that are not indexed yet."""

    count: int
    since: datetime | None


_backlog = Statement(
    """
    select cast(coalesce(sum(size), 0) as bigint) as size, min(created_at) as since
    from (select count as size, created_at from search_backlog order by created_at limit :limit) as oldest
    """,
    result={"size": Integer, "since": Moment},
)
_behind = Statement("select min(created_at) as since from search_backlog", result={"since": Moment})
_oldest_batches = Statement(
    "select notification_id, created_at, count as size from search_backlog order by created_at limit :limit {locked}",
    result={"notification_id": Id, "created_at": Moment, "size": Integer},
)
_arrived = Statement(
    """
    select notification_id, created_at, type, list_name, whole_list, source_site_id, incident,
        case when event_id is null or route_id is not null then subject else '' end as subject
    from notifications where created_at {any:moments}
    """,
    lists={"moments": "moment"},
    result={
        "notification_id": Id,
        "created_at": Moment,
        "type": Text,
        "list_name": Text,
        "whole_list": Text,
        "source_site_id": Text,
        "incident": Text,
        "subject": Text,
    },
)
_delete_batches = Statement("delete from search_backlog where notification_id {any:ids}", lists={"ids": "id"})

_CHUNK: Mapping[str, ParameterKind] = {
    "day": "int",
    "term": "text",
    "newest": "bytes",
    "sweep": "int",
    "places": "bytes",
}
_add_postgresql = Statement(
    f"insert into search_terms ({', '.join(_CHUNK)}) select {', '.join(_CHUNK)} from {{rows}}",
    sqlite="select 1",
    rows=_CHUNK,
)
_add_sqlite = f"insert into search_terms ({', '.join(_CHUNK)}) values (?, ?, ?, ?, ?)"

_DAYS = """
    with recursive days as (
        select min(day) as day from search_terms
        union all
        select (select min(day) from search_terms where day > days.day) from days where days.day is not null
    )
"""
_empty_days = Statement(
    f"""{_DAYS}
    select day from days where day is not null and not exists (
        select 1 from notifications n where n.created_at >= timestamptz 'epoch' + days.day * interval '24 hours'
            and n.created_at < timestamptz 'epoch' + (days.day + 1) * interval '24 hours')
    """,
    sqlite=f"""{_DAYS}
    select day from days where day is not null and not exists (
        select 1 from notifications n
        where n.created_at >= days.day * {DAY_US} and n.created_at < (days.day + 1) * {DAY_US})
    """,
    result={"day": Integer},
)
_delete_chunks = Statement(
    """
    delete from search_terms where (day, term, newest, sweep) in (
        select day, term, newest, sweep from search_terms where day = :day limit :limit
    ) returning day
    """
)


def backlog(conn: Connection, limit: int = _BATCHES) -> SearchBacklog:
    """The number of rows that are not indexed yet, counted in at most `limit` batches, and the time of the oldest."""
    found = _backlog.run(conn, limit=limit)[0]
    return SearchBacklog(found.size, found.since)


def behind_since(conn: Connection) -> datetime | None:
    """All rows that arrived before this time are indexed; None when all rows are."""
    since: datetime | None = _behind.run(conn)[0].since
    return since


def index(conn: Connection, rows_max: int, sweep: int) -> int:
    """Index the oldest batches, up to `rows_max` rows or one batch; how many rows. `sweep` is a new number."""
    batches: list[Row[Any]] = []
    count = 0
    for batch in _oldest_batches.run(conn, limit=_BATCHES):
        if batches and count + batch.size > rows_max:
            break
        batches.append(batch)
        count += batch.size
    if not batches:
        return 0
    arrived = _arrived.run(conn, moments=list({batch.created_at for batch in batches}))
    _add(conn, _chunks_of(arrived, sweep))
    _delete_batches.run(conn, ids=[batch.notification_id for batch in batches])
    return count


def purge(conn: Connection, span: PurgeRange) -> PurgedBatch:
    """Delete chunks of days without notifications, at most `limit`."""
    count = 0
    for row in _empty_days.run(conn):
        if count >= span.limit:
            break
        count += len(_delete_chunks.run(conn, day=row.day, limit=span.limit - count))
    return PurgedBatch(count, span.after if count >= span.limit else None)


def terms_of(wanted: Filter) -> list[str]:
    """The terms that every match of this filter has, the usually rarest first."""
    named = (
        ("i", wanted.incident),
        ("s", wanted.site),
        ("l", wanted.list_name),
        ("t", wanted.type or _type_of(wanted.kind)),
    )
    return [f"w:{word}" for word in wanted.words] + [f"{kind}:{name}" for kind, name in named if name is not None]


def _type_of(kind: NotificationKind | None) -> str | None:
    """The type that all notifications of this kind have."""
    return kind.value if kind is NotificationKind.WEBHOOK else None


def _chunks_of(arrived: Sequence[Row[Any]], sweep: int) -> list[tuple[int, str, bytes, int, bytes]]:
    by_term: dict[tuple[int, str], list[bytes]] = {}
    for row in arrived:
        place = pack((row.created_at, row.notification_id))
        day = day_of(row.created_at)
        for term in (
            f"t:{row.type}",
            *(f"l:{name}" for name in {row.list_name, row.whole_list} if name is not None),
            f"s:{row.source_site_id}",
            *([f"i:{row.incident}"] if row.incident is not None else ()),
            *(f"w:{word}" for word in tokenize(row.subject)),
        ):
            by_term.setdefault((day, term), []).append(place)
    chunks = []
    for day, term in sorted(by_term):
        found = sorted(by_term[day, term], reverse=True)
        for at in range(0, len(found), CHUNK_PLACES):
            chunks.append((day, term, found[at], sweep, b"".join(found[at : at + CHUNK_PLACES])))
    return chunks


def _add(conn: Connection, chunks: list[tuple[int, str, bytes, int, bytes]]) -> None:
    if not chunks:
        return
    if conn.dialect.name == "sqlite":
        conn.exec_driver_sql(_add_sqlite, chunks)
    else:
        _add_postgresql.run(conn, chunks)


def pack(place: PageKey) -> bytes:
    """24 bytes that sort like the place."""
    return PACKED.pack(to_microseconds(place[0]), bytes.fromhex(place[1].replace("-", "")))


def split(places: bytes) -> list[bytes]:
    content = bytes(places)
    return [content[at : at + PACKED.size] for at in range(0, len(content), PACKED.size)]


def unpack(place: bytes) -> PageKey:
    microseconds, rest = PACKED.unpack(place)
    text = rest.hex()
    return from_microseconds(microseconds), f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def day_of(moment: datetime) -> int:
    return (moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days
