"""Bulk actions and their results per notification."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Boolean, Connection, Integer, Row, Text, insert
from sqlalchemy.types import TypeEngine

from fieldpost.central.store.engine.column_types import Id, Json, Moment
from fieldpost.central.store.engine.purging import PurgedBatch, PurgeRange
from fieldpost.central.store.engine.statement import ParameterKind, Statement
from fieldpost.central.store.schema.audit_tables import bulk_actions
from fieldpost.core.bulk import BulkAction, BulkStatus, BulkVerb, RowOutcome, Tried
from fieldpost.core.notification import Status
from fieldpost.core.search.page_key import PageKey


@dataclass(frozen=True, slots=True)
class ActRow:
    """One notification of a bulk action; `version` is the one seen, None if it did not exist."""

    position: int
    notification_id: str
    version: int | None
    error_key: str | None
    outcome: RowOutcome | None = None
    current_status: Status | None = None
    """The status of the notification if it was refused."""
    settled_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class BulkStep:
    """A due bulk action, locked until the transaction ends; `gathered_to` is where its search continues."""

    act: BulkAction
    gathered_to: PageKey | None


TOP: PageKey = (datetime(9999, 1, 1, tzinfo=UTC), "ffffffff-ffff-7fff-bfff-ffffffffffff")
"""Later than any position."""

_ACT: Mapping[str, TypeEngine[Any] | type[TypeEngine[Any]]] = {
    "action_id": Id,
    "verb": Text,
    "actor": Text,
    "reason": Text,
    "wanted": Json,
    "as_of": Moment,
    "in_stages": Boolean,
    "created_at": Moment,
    "status": Text,
    "stage": Integer,
    "total": Integer,
    "done": Integer,
    "conflicts": Integer,
    "gone": Integer,
    "note": Text,
    "ended_at": Moment,
}
_COLUMNS = ", ".join(_ACT)
_ROW = {
    "position": Integer,
    "notification_id": Id,
    "version": Integer,
    "error_key": Text,
    "outcome": Text,
    "current_status": Text,
    "settled_at": Moment,
}

_get = Statement(f"select {_COLUMNS} from bulk_actions where action_id = :action_id", result=_ACT)
_newest = Statement(
    f"""
    select {_COLUMNS} from bulk_actions where (created_at, action_id) < (:at, :action_id)
    order by created_at desc, action_id desc limit :limit
    """,
    result=_ACT,
)
_next_due = Statement(
    "select action_id from bulk_actions where ended_at is null and due_at <= {now} order by due_at limit 1",
    result={"action_id": Id},
)
# The row lock is the claim: a step is one transaction, and ends with a node that dies.
_turn = Statement(
    f"""
    select {_COLUMNS}, gathered_to_at, gathered_to_id from bulk_actions
    where action_id = :action_id and ended_at is null and due_at <= {{now}} {{locked}}
    """,
    result={**_ACT, "gathered_to_at": Moment, "gathered_to_id": Id},
)
_keep = Statement(
    """
    update bulk_actions set status = :status, stage = :stage, total = :total, done = :done, conflicts = :conflicts,
        gone = :gone, note = :note, ended_at = :ended_at, due_at = :due_at, gathered_to_at = :at, gathered_to_id = :id
    where action_id = :action_id
    """
)
_postpone = Statement(
    "update bulk_actions set due_at = {now+wait_s} where action_id = :action_id and ended_at is null",
)
_cancel = Statement(
    """
    update bulk_actions set status = 'cancelled', note = :note, ended_at = :at, due_at = null
    where action_id = :action_id and ended_at is null returning action_id
    """
)

_NEW_ROW: Mapping[str, ParameterKind] = {
    "position": "int",
    "notification_id": "id",
    "version": "int",
    "error_key": "text",
}
_add_rows = Statement(
    f"""
    insert into bulk_action_rows (action_id, {", ".join(_NEW_ROW)})
    select :action_id, {", ".join(_NEW_ROW)} from {{rows}}
    """,
    rows=_NEW_ROW,
)
_rows = Statement(
    f"""
    select {", ".join(_ROW)} from bulk_action_rows
    where action_id = :action_id and position > :after and (cast(:outcome as text) is null or outcome = :outcome)
    order by position limit :limit
    """,
    result=_ROW,
)
_settle = Statement(
    """
    update bulk_action_rows set outcome = u.outcome, current_status = u.current_status, settled_at = :at
    from {rows} where bulk_action_rows.action_id = :action_id and bulk_action_rows.position = u.position
    """,
    rows={"position": "int", "outcome": "text", "current_status": "text"},
)
_tried = Statement(
    """
    select r.error_key, n.status, n.last_error from bulk_action_rows r
    join notifications n on n.notification_id = r.notification_id
    where r.action_id = :action_id and r.position <= :end and r.outcome = 'done'
    """,
    result={"error_key": Text, "status": Text, "last_error": Text},
)
# The rows first, in batches: there may be a hundred thousand.
_purge_rows = Statement(
    """
    delete from bulk_action_rows where (action_id, position) in (
        select r.action_id, r.position from bulk_actions a join bulk_action_rows r on r.action_id = a.action_id
        where a.ended_at < :cutoff limit :limit
    ) returning position
    """
)
_purge_acts = Statement(
    """
    delete from bulk_actions where ended_at < :cutoff
        and not exists (select 1 from bulk_action_rows r where r.action_id = bulk_actions.action_id)
    """
)


def add(conn: Connection, act: BulkAction, rows: Sequence[ActRow] = ()) -> None:
    """Add a bulk action, due at once; with its rows if it is for a selection."""
    values = {name: getattr(act, name) for name in _ACT} | {"verb": act.verb.value, "status": act.status.value}
    conn.execute(insert(bulk_actions).values(values | {"due_at": None if act.ended_at else act.created_at}))
    add_rows(conn, act.action_id, rows)


def add_rows(conn: Connection, action_id: str, rows: Sequence[ActRow]) -> None:
    if rows:
        _add_rows.run(
            conn, [(r.position, r.notification_id, r.version, r.error_key) for r in rows], action_id=action_id
        )


def get(conn: Connection, action_id: str) -> BulkAction | None:
    found = _get.run(conn, action_id=action_id)
    return _act(found[0]) if found else None


def newest(conn: Connection, limit: int, before: PageKey | None = None) -> list[BulkAction]:
    """The bulk actions before this position, newest first."""
    at, action_id = before or TOP
    return [_act(row) for row in _newest.run(conn, at=at, action_id=action_id, limit=limit)]


def next_due(conn: Connection, *, now: datetime | None) -> str | None:
    """The bulk action that is due for the longest time."""
    found = _next_due.run(conn, now=now)
    return found[0].action_id if found else None


def take_turn(conn: Connection, action_id: str, *, now: datetime | None) -> BulkStep | None:
    """The bulk action, locked, if it is due and no other node has it."""
    found = _turn.run(conn, action_id=action_id, now=now)
    if not found:
        return None
    row = found[0]
    return BulkStep(_act(row), (row.gathered_to_at, row.gathered_to_id) if row.gathered_to_id else None)


def keep(conn: Connection, act: BulkAction, due_at: datetime | None, gathered_to: PageKey | None = None) -> None:
    """Write the progress at the end of a step; `due_at` is the time of the next one, None at the end."""
    at, notification_id = gathered_to or (None, None)
    _keep.run(
        conn,
        action_id=act.action_id,
        status=act.status.value,
        due_at=due_at,
        at=at,
        id=notification_id,
        **{name: getattr(act, name) for name in _PROGRESS},
    )


def postpone(conn: Connection, action_id: str, wait_s: float, *, now: datetime | None) -> None:
    """Let the others go first."""
    _postpone.run(conn, action_id=action_id, wait_s=wait_s, now=now)


_PROGRESS = ("stage", "total", "done", "conflicts", "gone", "note", "ended_at")


def cancel(conn: Connection, action_id: str, note: str, at: datetime) -> bool:
    """End the bulk action, after the step that may be running; False if it has ended already."""
    return bool(_cancel.run(conn, action_id=action_id, note=note, at=at))


def rows_of(
    conn: Connection, action_id: str, *, after: int = 0, limit: int, outcome: RowOutcome | None = None
) -> list[ActRow]:
    """The rows after this position, in order."""
    return [_row(row) for row in _rows.run(conn, action_id=action_id, after=after, limit=limit, outcome=outcome)]


def settle(conn: Connection, act: BulkAction, rows: Sequence[ActRow], at: datetime) -> BulkAction:
    """Write the outcomes of these rows; the bulk action with the new counts."""
    _settle.run(conn, [(r.position, r.outcome, r.current_status) for r in rows], action_id=act.action_id, at=at)
    outcomes = [row.outcome for row in rows]
    return replace(
        act,
        done=act.done + outcomes.count(RowOutcome.DONE),
        conflicts=act.conflicts + outcomes.count(RowOutcome.CONFLICT),
        gone=act.gone + outcomes.count(RowOutcome.GONE),
    )


def tried(conn: Connection, action_id: str, end: int) -> list[Tried]:
    """The present status of the changed notifications, up to this position."""
    found = _tried.run(conn, action_id=action_id, end=end)
    return [Tried(row.error_key, Status(row.status), row.last_error) for row in found]


def purge(conn: Connection, span: PurgeRange) -> PurgedBatch:
    """Delete bulk actions that ended before the cutoff, after their rows, in batches."""
    count = len(_purge_rows.run(conn, cutoff=span.cutoff, limit=span.limit))
    if count < span.limit:
        _purge_acts.run(conn, cutoff=span.cutoff)
    return PurgedBatch(count, span.after if count >= span.limit else None)


def _act(row: Row[Any]) -> BulkAction:
    given = {name: getattr(row, name) for name in _ACT}
    return BulkAction(**given | {"verb": BulkVerb(row.verb), "status": BulkStatus(row.status)})


def _row(row: Row[Any]) -> ActRow:
    given = {name: getattr(row, name) for name in _ROW}
    given["outcome"] = RowOutcome(row.outcome) if row.outcome else None
    given["current_status"] = Status(row.current_status) if row.current_status else None
    return ActRow(**given)
