"""Taking notifications in: insert-if-absent, and what stood there already."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, LargeBinary, Text, insert

from fieldpost.central.store.statement import Kind, Statement
from fieldpost.central.store.tables import notifications
from fieldpost.central.store.types import Id
from fieldpost.core.notification import Submission


@dataclass(frozen=True, slots=True)
class Arrival:
    """A submission on its way into the table, with what central adds to it."""

    submission: Submission
    digest: bytes
    type: str
    delivery_key: str
    enqueued_at: datetime | None
    enqueued_text: str | None


@dataclass(frozen=True, slots=True)
class Standing:
    """Who sent what stands under an id already, and its content's digest (of a row, or of a purged one's tombstone)."""

    site: str
    digest: bytes


_ROWS: Mapping[str, Kind] = {
    "notification_id": "id",
    "type": "text",
    "list_name": "text",
    "subject": "text",
    "body": "text",
    "source_site_id": "text",
    "source_instance_id": "text",
    "source_script": "text",
    "origin_execution_id": "text",
    "origin_parent_execution_id": "text",
    "site_enqueued_at": "moment",
    "site_enqueued_text": "text",
    "delivery_key": "text",
    "digest": "bytes",
}
_COLUMNS = ", ".join(_ROWS)

_insert_postgresql = Statement(
    f"""
    with moment as materialized (select {{now}} as at)
    insert into notifications ({_COLUMNS}, status, created_at, due_at, cycle_started_at)
    select {_COLUMNS}, 'pending', moment.at, moment.at, moment.at
    from {{rows}}, moment
    where not exists (select 1 from tombstones t where t.notification_id = u.notification_id)
    order by u.notification_id
    on conflict (notification_id) do nothing
    returning notification_id
    """,
    # SQLite never runs this text (it cannot carry bytes in JSON); see _insert_sqlite.
    sqlite="select 1",
    rows=_ROWS,
    result={"notification_id": Id},
)

_standing = Statement(
    """
    select notification_id, source_site_id, digest from notifications where notification_id {any:ids}
    union all
    select notification_id, source_site_id, digest from tombstones where notification_id {any:ids}
    """,
    lists={"ids": "id"},
    result={"notification_id": Id, "source_site_id": Text, "digest": LargeBinary},
)


def insert_if_absent(conn: Connection, arrivals: Sequence[Arrival], *, now: datetime | None) -> set[str]:
    """Insert those whose id is new (each given id only once); the ids that were inserted."""
    if conn.dialect.name == "sqlite":
        assert now is not None, "SQLite takes the time from the clock"
        return _insert_sqlite(conn, arrivals, now)
    return {row.notification_id for row in _insert_postgresql.run(conn, [_row(a) for a in arrivals], now=now)}


def standing(conn: Connection, ids: Collection[str]) -> dict[str, Standing]:
    """What stands under these ids already."""
    found = _standing.run(conn, ids=list(ids)) if ids else []
    return {row.notification_id: Standing(row.source_site_id, bytes(row.digest)) for row in found}


def _insert_sqlite(conn: Connection, arrivals: Sequence[Arrival], now: datetime) -> set[str]:
    # The one writer sees what nobody else can change before its commit, so looking first is safe here.
    taken = standing(conn, [a.submission.notification_id for a in arrivals])
    fresh = [a for a in arrivals if a.submission.notification_id not in taken]
    if fresh:
        times = {"status": "pending", "created_at": now, "due_at": now, "cycle_started_at": now}
        conn.execute(insert(notifications), [dict(zip(_ROWS, _row(a), strict=True)) | times for a in fresh])
    return {a.submission.notification_id for a in fresh}


def _row(a: Arrival) -> tuple[object, ...]:
    s = a.submission
    p = s.provenance
    return (
        s.notification_id,
        a.type,
        s.list_name,
        s.subject,
        s.body,
        p.site,
        p.instance,
        p.script,
        p.execution_id,
        p.parent_execution_id,
        a.enqueued_at,
        a.enqueued_text,
        a.delivery_key,
        a.digest,
    )
