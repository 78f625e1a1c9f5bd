"""Accepting notifications: insert if absent, with the audit entry of the send.

Type and delivery key are fixed here, from the current list. The audit entry has the id of the notification, so that a
send is never recorded twice. One row of `search_backlog` per batch marks it as not yet indexed (terms.py).

Submissions to lists of lists are left out here; `insert_wholes` stores them with their parts. Their audit entry has
their id too, so that an id cannot become a notification and a whole at the same moment.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, LargeBinary, Text
from sqlalchemy.dialects.postgresql import ARRAY

from fieldpost.central.store.engine.column_types import Id
from fieldpost.central.store.engine.statement import ParameterKind, Statement
from fieldpost.core.lists import LISTS_TYPE, UNRESOLVED_TYPE
from fieldpost.core.notification import LIST_KEY, Submission
from fieldpost.core.times import from_text, to_microseconds
from fieldpost.core.wholes import part_id


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
    "incident": "text",
    "is_cleared": "bool",
    "severity": "text",
}
_PART_ROWS: Mapping[str, ParameterKind] = {**_ROWS, "whole_id": "id", "whole_list": "text"}
# A list may give its severity to notifications that have none.
_SEVERITY = "coalesce(u.severity, l.severity)"
_SEVERITY_AT = list(_PART_ROWS).index("severity")
_IS_CLEARED_AT = list(_PART_ROWS).index("is_cleared")
_MADE = "type, delivery_key, status, created_at, due_at, cycle_started_at"

_AUDIT = """
    insert into audit (event_id, occurred_at, ingested_at, correlation_id, execution_id, parent_execution_id, channel,
        kind, status, source_site_id, source_instance_id, source_script, actor, target)
    select notification_id, created_at, created_at, notification_id, origin_execution_id, origin_parent_execution_id,
        'notification', 'notify_send', 'submitted', source_site_id, source_instance_id, source_script,
        coalesce(source_script, source_site_id), list_name
"""


def _inserting(rows: Mapping[str, ParameterKind], condition: str) -> Statement:
    return Statement(
        f"""
    with moment as materialized (select {{now}} as at),
    inserted as (
        insert into notifications ({", ".join(rows)}, {_MADE})
        select {", ".join(_SEVERITY if name == "severity" else f"u.{name}" for name in rows)},
            coalesce(l.type, :unresolved),
            :key_prefix || u.list_name, 'pending', moment.at, moment.at, moment.at
        from {{rows}} cross join moment left join lists l on l.list_name = u.list_name
        where {condition}
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
        # SQLite has no writing common table expressions, and bytes do not travel in JSON: see _insert_rows_sqlite.
        sqlite="select 1",
        rows=rows,
        # The inserted ids only if not all were inserted: reading hundreds of ids costs more than the statement.
        result={"inserted": ARRAY(Id)},
    )


_insert_postgresql = _inserting(
    _ROWS,
    f"""
        (l.type is null or l.type <> '{LISTS_TYPE}')
        and not exists (select 1 from tombstones t where t.notification_id = u.notification_id)
        and not exists (select 1 from wholes w where w.whole_id = u.notification_id)
    """,
)
_insert_parts_postgresql = _inserting(_PART_ROWS, "true")

_SQLITE_COLUMNS = (*_PART_ROWS, *_MADE.split(", "))
_lists = Statement(
    "select list_name, type, severity from lists where list_name {any:names}",
    lists={"names": "text"},
    result={"list_name": Text, "type": Text, "severity": Text},
)
_to_index_sqlite = Statement(
    "insert into search_backlog (notification_id, created_at, count) values (:id, :at, :count)"
)
_audit_sqlite = Statement(f"{_AUDIT} from notifications where notification_id {{any:ids}}", lists={"ids": "id"})

_stored = Statement(
    """
    select notification_id, source_site_id, digest from notifications where notification_id {any:ids}
    union all
    select notification_id, source_site_id, digest from tombstones where notification_id {any:ids}
    union all
    select whole_id, source_site_id, digest from wholes where whole_id {any:ids}
    """,
    lists={"ids": "id"},
    result={"notification_id": Id, "source_site_id": Text, "digest": LargeBinary},
)
_members = Statement(
    f"""
    select l.list_name, t.address from lists l left join list_targets t on t.list_name = l.list_name
    where l.list_name {{any:names}} and l.type = '{LISTS_TYPE}' order by l.list_name, t.address
    """,
    lists={"names": "text"},
    result={"list_name": Text, "address": Text},
)
_WHOLE_ROWS: Mapping[str, ParameterKind] = {
    "whole_id": "id",
    "list_name": "text",
    "source_site_id": "text",
    "digest": "bytes",
}
_insert_wholes_postgresql = Statement(
    f"""
    insert into wholes ({", ".join(_WHOLE_ROWS)}, created_at)
    select {", ".join(f"u.{name}" for name in _WHOLE_ROWS)}, {{now}} from {{rows}}
    where not exists (select 1 from tombstones t where t.notification_id = u.whole_id)
        and not exists (select 1 from notifications n where n.notification_id = u.whole_id)
    order by u.whole_id on conflict (whole_id) do nothing returning whole_id
    """,
    sqlite="select 1",
    rows=_WHOLE_ROWS,
    result={"whole_id": Id},
)
_insert_wholes_sqlite = f"insert into wholes ({', '.join(_WHOLE_ROWS)}, created_at) values (?, ?, ?, ?, ?)"
_audit_wholes = Statement(
    """
    insert into audit (event_id, occurred_at, ingested_at, correlation_id, execution_id, parent_execution_id, channel,
        kind, status, source_site_id, source_instance_id, source_script, actor, target)
    select w.whole_id, w.created_at, w.created_at, w.whole_id, u.execution_id, u.parent_execution_id, 'notification',
        'notify_send', 'submitted', w.source_site_id, u.instance, u.script, coalesce(u.script, w.source_site_id),
        w.list_name
    from {rows} join wholes w on w.whole_id = u.whole_id
    """,
    rows={
        "whole_id": "id",
        "instance": "text",
        "script": "text",
        "execution_id": "text",
        "parent_execution_id": "text",
    },
)


def insert_if_absent(
    conn: Connection, arrived: Sequence[tuple[Submission, bytes]], *, now: datetime | None
) -> set[str]:
    """Insert the submissions, each with its digest, whose id is new; each id once. Returns the inserted ids.

    Submissions to lists of lists are left to `insert_wholes`.
    """
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


def insert_wholes(
    conn: Connection, arrived: Sequence[tuple[Submission, bytes]], *, now: datetime | None
) -> dict[str, int]:
    """Insert those submissions whose id is new and whose list is a list of lists, with their parts.

    Returns the number of rows by inserted id. The lists are those of this transaction. A list of lists that names no
    list gets a notification under the submitted id, which parks.
    """
    found = _members.run(conn, names=sorted({s.list_name for s, _ in arrived}))
    members: dict[str, list[str]] = {row.list_name: [] for row in found}
    for row in found:
        if row.address is not None:
            members[row.list_name].append(row.address)
    fresh = [(s, digest) for s, digest in arrived if members.get(s.list_name)]
    inserted = _insert_whole_rows(conn, fresh, now) if fresh else set()
    parts = [
        (replace(s, notification_id=part_id(s.notification_id, name), list_name=name), digest, s)
        for s, digest in fresh
        if s.notification_id in inserted
        for name in members[s.list_name]
    ]
    empty = [(s, digest) for s, digest in arrived if s.list_name in members and not members[s.list_name]]
    taken = stored_content(conn, [s.notification_id for s, _ in empty])
    rows = [(*_row(part, digest), s.notification_id, s.list_name) for part, digest, s in parts]
    rows += [(*_row(s, digest), None, None) for s, digest in empty if s.notification_id not in taken]
    if not rows:
        return {}
    if conn.dialect.name == "sqlite":
        assert now is not None, "SQLite takes the time from the clock"
        _insert_rows_sqlite(conn, rows, now, _lists_of(conn, rows))
    else:
        _insert_parts_postgresql.run(
            conn, rows, unresolved=UNRESOLVED_TYPE, key_prefix=LIST_KEY, count=len(rows), now=now
        )
    sizes: dict[str, int] = {s.notification_id: 1 for s, _ in empty if s.notification_id not in taken}
    return sizes | {i: len(members[s.list_name]) for s, _ in fresh if (i := s.notification_id) in inserted}


def _insert_whole_rows(conn: Connection, fresh: Sequence[tuple[Submission, bytes]], now: datetime | None) -> set[str]:
    rows = [(s.notification_id, s.list_name, s.provenance.site, digest) for s, digest in fresh]
    if conn.dialect.name == "sqlite":
        assert now is not None, "SQLite takes the time from the clock"
        taken = stored_content(conn, [row[0] for row in rows])
        rows = [row for row in rows if row[0] not in taken]
        if rows:
            conn.exec_driver_sql(_insert_wholes_sqlite, [(*row, to_microseconds(now)) for row in rows])
        inserted: set[str] = {row[0] for row in rows}
    else:
        inserted = {row.whole_id for row in _insert_wholes_postgresql.run(conn, rows, now=now)}
    sent = [(s.notification_id, s.provenance) for s, _ in fresh if s.notification_id in inserted]
    if sent:
        _audit_wholes.run(conn, [(i, p.instance, p.script, p.execution_id, p.parent_execution_id) for i, p in sent])
    return inserted


def _insert_sqlite(conn: Connection, arrived: Sequence[tuple[Submission, bytes]], now: datetime) -> set[str]:
    # No one else writes before the one writer commits, so checking first is safe here.
    taken = stored_content(conn, [s.notification_id for s, _ in arrived])
    fresh = [(s, digest) for s, digest in arrived if s.notification_id not in taken]
    rows = [(*_row(s, digest), None, None) for s, digest in fresh]
    lists = _lists_of(conn, rows)
    if wholes := {name for name, (type_, _) in lists.items() if type_ == LISTS_TYPE}:
        rows = [row for row in rows if row[1] not in wholes]
    if rows:
        _insert_rows_sqlite(conn, rows, now, lists)
    return {row[0] for row in rows}


def _lists_of(conn: Connection, rows: Sequence[tuple[Any, ...]]) -> Mapping[str, tuple[str, str | None]]:
    """Type and severity of the rows' lists."""
    found = _lists.run(conn, names=sorted({row[1] for row in rows}))
    return {row.list_name: (row.type, row.severity) for row in found}


def _insert_rows_sqlite(
    conn: Connection, rows: Sequence[tuple[Any, ...]], now: datetime, lists: Mapping[str, tuple[str, str | None]]
) -> None:
    """Rows of _PART_ROWS."""
    at = to_microseconds(now)
    values = []
    for row in rows:
        given = [to_microseconds(v) if isinstance(v, datetime) else v for v in row]
        type_, severity = lists.get(row[1], (UNRESOLVED_TYPE, None))
        given[_SEVERITY_AT] = given[_SEVERITY_AT] or severity
        given[_IS_CLEARED_AT] = int(given[_IS_CLEARED_AT])
        values.append((*given, type_, LIST_KEY + row[1], "pending", at, at, at))
    columns = zip(_SQLITE_COLUMNS, zip(*values, strict=True), strict=True)
    # The driver looks for an adapter for each None and bool, which takes as long as the insert itself.
    used = [(name, column) for name, column in columns if any(value is not None for value in column)]
    marks = ", ".join("?" for _ in used)
    sql = f"insert into notifications ({', '.join(name for name, _ in used)}) values ({marks})"
    conn.exec_driver_sql(sql, list(zip(*(column for _, column in used), strict=True)))
    ids = [row[0] for row in rows]
    _audit_sqlite.run(conn, ids=ids)
    _to_index_sqlite.run(conn, id=ids[0], at=now, count=len(ids))


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
        s.incident,
        s.is_cleared,
        s.severity.value if s.severity is not None else None,
    )
