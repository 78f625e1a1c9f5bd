"""Accepting notifications: insert if absent, with the audit entry of the send.

Type and delivery key are fixed here, from the current list. The audit entry has the id of the notification, so that a
send is never recorded twice. One row of `search_backlog` per batch marks it as not yet indexed (terms.py).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, LargeBinary, Text
from sqlalchemy.dialects.postgresql import ARRAY

from fieldpost.central.store.engine.column_types import Id
from fieldpost.central.store.engine.statement import ParameterKind, Statement
from fieldpost.core.lists import UNRESOLVED_TYPE
from fieldpost.core.notification import LIST_KEY, Submission
from fieldpost.core.times import from_text, to_microseconds


@dataclass(frozen=True, slots=True)
class StoredContent:
    """Sender and content digest of the notification (or the tombstone) that already has an id."""

    site: str
    digest: bytes


_ROWS: Mapping[str, ParameterKind] = {
    "notification_id": "id",
    "list_name": "text",
    "subject": "text",
    "body": "text",
    "source_instance_id": "text",
    "source_script": "text",
    "origin_execution_id": "text",
    "origin_parent_execution_id": "text",
    "site_enqueued_at": "moment",
    "site_enqueued_text": "text",
    "digest": "bytes",
    "source_site_id": "text",
}
_GIVEN = ", ".join(_ROWS)
_COLUMNS = f"{_GIVEN}, type, delivery_key, status, created_at, due_at, cycle_started_at"

_AUDIT = """
    insert into audit (event_id, occurred_at, ingested_at, correlation_id, execution_id, parent_execution_id, channel,
        kind, status, source_site_id, source_instance_id, source_script, actor, target)
    select notification_id, created_at, created_at, notification_id, origin_execution_id, origin_parent_execution_id,
        'notification', 'notify_send', 'submitted', source_site_id, source_instance_id, source_script,
        coalesce(source_script, source_site_id), list_name
"""

_insert_postgresql = Statement(
    f"""
    with moment as materialized (select {{now}} as at),
    inserted as (
        insert into notifications ({_COLUMNS})
        select {", ".join(f"u.{name}" for name in _ROWS)}, coalesce(l.type, :unresolved),
            :key_prefix || u.list_name, 'pending', moment.at, moment.at, moment.at
        from {{rows}} cross join moment left join lists l on l.list_name = u.list_name
        where not exists (select 1 from tombstones t where t.notification_id = u.notification_id)
        order by u.notification_id
        on conflict (notification_id) do nothing
        returning notification_id, created_at, origin_execution_id, origin_parent_execution_id, source_site_id,
            source_instance_id, source_script, list_name
    ),
    to_index as (
        insert into search_backlog (notification_id, created_at, count)
        select (array_agg(notification_id))[1], created_at, count(*) from inserted group by created_at
    ),
    audited as (
        {_AUDIT} from inserted returning correlation_id
    )
    select case when count(*) < cast(:count as bigint) then coalesce(array_agg(correlation_id), '{{}}') end as inserted
    from audited
    """,
    # SQLite has no writing common table expressions, and bytes do not travel in JSON: see _insert_sqlite.
    sqlite="select 1",
    rows=_ROWS,
    # The inserted ids only if not all were inserted: reading hundreds of ids costs more than the statement.
    result={"inserted": ARRAY(Id)},
)

_insert_sqlite_rows = f"""
    insert into notifications ({_COLUMNS})
    values ({", ".join("?" for _ in _ROWS)}, coalesce((select type from lists where list_name = ?), ?), ?, 'pending',
        ?, ?, ?)
"""
_to_index_sqlite = Statement(
    "insert into search_backlog (notification_id, created_at, count) values (:id, :at, :count)"
)
_audit_sqlite = Statement(f"{_AUDIT} from notifications where notification_id {{any:ids}}", lists={"ids": "id"})

_stored = Statement(
    """
    select notification_id, source_site_id, digest from notifications where notification_id {any:ids}
    union all
    select notification_id, source_site_id, digest from tombstones where notification_id {any:ids}
    """,
    lists={"ids": "id"},
    result={"notification_id": Id, "source_site_id": Text, "digest": LargeBinary},
)


def insert_if_absent(
    conn: Connection, arrived: Sequence[tuple[Submission, bytes]], *, now: datetime | None
) -> set[str]:
    """Insert the submissions, each with its digest, whose id is new; each id once. Returns the inserted ids."""
    if conn.dialect.name == "sqlite":
        assert now is not None, "SQLite takes the time from the clock"
        return _insert_sqlite(conn, arrived, now)
    ((inserted,),) = _insert_postgresql.run(
        conn,
        [_row(*a) for a in arrived],
        unresolved=UNRESOLVED_TYPE,
        key_prefix=LIST_KEY,
        count=len(arrived),
        now=now,
    )
    return {s.notification_id for s, _ in arrived} if inserted is None else set(inserted)


def stored_content(conn: Connection, ids: Collection[str]) -> dict[str, StoredContent]:
    """The stored content under these ids."""
    found = _stored.run(conn, ids=list(ids)) if ids else []
    return {row.notification_id: StoredContent(row.source_site_id, bytes(row.digest)) for row in found}


def _insert_sqlite(conn: Connection, arrived: Sequence[tuple[Submission, bytes]], now: datetime) -> set[str]:
    # No one else writes before the one writer commits, so checking first is safe here.
    taken = stored_content(conn, [s.notification_id for s, _ in arrived])
    fresh = [(s, digest) for s, digest in arrived if s.notification_id not in taken]
    if not fresh:
        return set()
    at = to_microseconds(now)
    rows = []
    for s, digest in fresh:
        row = _row(s, digest)
        given = [to_microseconds(v) if isinstance(v, datetime) else v for v in row]
        rows.append((*given, s.list_name, UNRESOLVED_TYPE, LIST_KEY + s.list_name, at, at, at))
    conn.exec_driver_sql(_insert_sqlite_rows, rows)
    ids = [s.notification_id for s, _ in fresh]
    _audit_sqlite.run(conn, ids=ids)
    _to_index_sqlite.run(conn, id=ids[0], at=now, count=len(ids))
    return set(ids)


def _row(s: Submission, digest: bytes) -> tuple[Any, ...]:
    p = s.provenance
    # The site's time if it can be parsed, else its text; only for display.
    enqueued_at = from_text(s.enqueued_at) if s.enqueued_at else None
    enqueued_text = s.enqueued_at if enqueued_at is None else None
    return (
        s.notification_id,
        s.list_name,
        s.subject,
        s.body,
        p.instance,
        p.script,
        p.execution_id,
        p.parent_execution_id,
        enqueued_at,
        enqueued_text,
        digest,
        p.site,
    )
