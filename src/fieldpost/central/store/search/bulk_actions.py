"""Bulk actions and their results per notification."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sqlalchemy import Connection, Text, insert

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.purging import PurgedBatch, PurgeRange
from fieldpost.central.store.engine.records import Records
from fieldpost.central.store.engine.statement import ParameterKind, Statement
from fieldpost.central.store.schema.audit_tables import bulk_action_rows, bulk_actions
from fieldpost.core.bulk import BulkAction, RowOutcome, Tried
from fieldpost.core.notification import Status
from fieldpost.core.search.page_key import PageKey


@dataclass(frozen=True, slots=True)
class BulkRow:
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

    action: BulkAction
    gathered_to: PageKey | None


TOP: PageKey = (datetime(9999, 1, 1, tzinfo=UTC), "ffffffff-ffff-7fff-bfff-ffffffffffff")
"""Later than any position."""

_ACTIONS = Records(bulk_actions, BulkAction)
_ROWS = Records(bulk_action_rows, BulkRow)

_get = Statement(f"select {_ACTIONS.names} from bulk_actions where action_id = :action_id", result=_ACTIONS.types)
_newest = Statement(
    f"""
    select {_ACTIONS.names} from bulk_actions where (created_at, action_id) < (:at, :action_id)
    order by created_at desc, action_id desc limit :limit
    """,
    result=_ACTIONS.types,
)
_next_due = Statement(
    "select action_id from bulk_actions where ended_at is null and due_at <= {now} order by due_at limit 1",
    result={"action_id": Id},
)
# The row lock is the claim: a step is one transaction, and ends with a node that dies.
_turn = Statement(
    f"""
    select {_ACTIONS.names}, gathered_to_at, gathered_to_id from bulk_actions
    where action_id = :action_id and ended_at is null and due_at <= {{now}} {{locked}}
    """,
    result={**_ACTIONS.types, "gathered_to_at": Moment, "gathered_to_id": Id},
)
_keep = Statement(
    """
    update bulk_actions set status = :status, stage = :stage, total = :total, done = :done, conflicts = :conflicts,
        gone = :gone, note = :note, halting_error_key = :halting_error_key, ended_at = :ended_at, due_at = :due_at,
        gathered_to_at = :at, gathered_to_id = :id
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

_NEW_ROW: Mapping[str, ParameterKind] = dict(list(_ROWS.kinds.items())[:4])
_add_rows = Statement(
    f"""
    insert into bulk_action_rows (action_id, {", ".join(_NEW_ROW)})
    select :action_id, {", ".join(_NEW_ROW)} from {{rows}}
    """,
    rows=_NEW_ROW,
)
_rows = Statement(
    f"""
    select {_ROWS.names} from bulk_action_rows
    where action_id = :action_id and position > :after and (cast(:outcome as text) is null or outcome = :outcome)
    order by position limit :limit
    """,
    result=_ROWS.types,
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
_purge_actions = Statement(
    """
    delete from bulk_actions where ended_at < :cutoff
        and not exists (select 1 from bulk_action_rows r where r.action_id = bulk_actions.action_id)
    """
)


def add(conn: Connection, action: BulkAction, rows: Sequence[BulkRow] = ()) -> None:
    """Add a bulk action, due at once; with its rows if it is for a selection."""
    due_at = None if action.ended_at else action.created_at
    conn.execute(insert(bulk_actions).values(_ACTIONS.values(action) | {"due_at": due_at}))
    add_rows(conn, action.action_id, rows)


def add_rows(conn: Connection, action_id: str, rows: Sequence[BulkRow]) -> None:
    if rows:
        _add_rows.run(
            conn, [(r.position, r.notification_id, r.version, r.error_key) for r in rows], action_id=action_id
        )


def get(conn: Connection, action_id: str) -> BulkAction | None:
    found = _get.run(conn, action_id=action_id)
    return _ACTIONS.of(found[0]) if found else None


def newest(conn: Connection, limit: int, before: PageKey | None = None) -> list[BulkAction]:
    """The bulk actions before this position, newest first."""
    at, action_id = before or TOP
    return [_ACTIONS.of(row) for row in _newest.run(conn, at=at, action_id=action_id, limit=limit)]


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
    return BulkStep(_ACTIONS.of(row), (row.gathered_to_at, row.gathered_to_id) if row.gathered_to_id else None)


def keep(conn: Connection, action: BulkAction, due_at: datetime | None, gathered_to: PageKey | None = None) -> None:
    """Write the progress at the end of a step; `due_at` is the time of the next one, None at the end."""
    at, notification_id = gathered_to or (None, None)
    _keep.run(
        conn,
        action_id=action.action_id,
        status=action.status.value,
        due_at=due_at,
        at=at,
        id=notification_id,
        **{name: getattr(action, name) for name in _PROGRESS},
    )


def postpone(conn: Connection, action_id: str, wait_s: float, *, now: datetime | None) -> None:
    """Let the others go first."""
    _postpone.run(conn, action_id=action_id, wait_s=wait_s, now=now)


_PROGRESS = ("stage", "total", "done", "conflicts", "gone", "note", "halting_error_key", "ended_at")


def cancel(conn: Connection, action_id: str, note: str, at: datetime) -> bool:
    """End the bulk action, after the step that may be running; False if it has ended already."""
    return bool(_cancel.run(conn, action_id=action_id, note=note, at=at))


def rows_of(
    conn: Connection, action_id: str, *, after: int = 0, limit: int, outcome: RowOutcome | None = None
) -> list[BulkRow]:
    """The rows after this position, in order."""
    return [_ROWS.of(row) for row in _rows.run(conn, action_id=action_id, after=after, limit=limit, outcome=outcome)]


def settle(conn: Connection, action: BulkAction, rows: Sequence[BulkRow], at: datetime) -> BulkAction:
    """Write the outcomes of these rows; the bulk action with the new counts."""
    _settle.run(conn, [(r.position, r.outcome, r.current_status) for r in rows], action_id=action.action_id, at=at)
    outcomes = [row.outcome for row in rows]
    return replace(
        action,
        done=action.done + outcomes.count(RowOutcome.DONE),
        conflicts=action.conflicts + outcomes.count(RowOutcome.CONFLICT),
        gone=action.gone + outcomes.count(RowOutcome.GONE),
    )


def tried(conn: Connection, action_id: str, end: int) -> list[Tried]:
    """The present status of the changed notifications, up to this position."""
    found = _tried.run(conn, action_id=action_id, end=end)
    return [Tried(row.error_key, Status(row.status), row.last_error) for row in found]


def purge(conn: Connection, span: PurgeRange) -> PurgedBatch:
    """Delete bulk actions that ended before the cutoff, after their rows, in batches."""
    count = len(_purge_rows.run(conn, cutoff=span.cutoff, limit=span.limit))
    if count < span.limit:
        _purge_actions.run(conn, cutoff=span.cutoff)
    return PurgedBatch(count, span.after if count >= span.limit else None)
