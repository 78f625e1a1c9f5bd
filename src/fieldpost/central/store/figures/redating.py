"""Times that a node waits for, moved after the clock of an embedded store was set back.

History (arrivals, attempts, audit entries) keeps its times. Only times beyond the new time are moved: the others are
due, or were stored after the step.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.store.engine.column_types import Moment
from fieldpost.central.store.engine.statement import Statement

AWAITED: Mapping[str, Sequence[str]] = {
    "notifications": ("due_at", "next_attempt_at", "lease_until"),
    "breakers": ("open_until", "probe_until", "wait_until", "first_failure_at", "last_failure_at", "failing_since"),
    "rates": ("next_at",),
    "bulk_actions": ("due_at",),
    "login_delays": ("free_at", "failed_at"),
    "leases": ("lease_until",),
}
"""The columns that hold a time for which something waits, or from which a wait is counted."""


def _moving(table: str, columns: Sequence[str]) -> Statement:
    back = "cast(:back_s * 1000000 as integer)"
    moved = (f"{one} = case when {one} > :now then {one} - {back} else {one} end" for one in columns)
    is_ahead = (f"{one} > {{now}}" for one in columns)
    return Statement(f"update {table} set {', '.join(moved)} where {' or '.join(is_ahead)} returning 1")


_MOVING = {table: _moving(table, columns) for table, columns in AWAITED.items()}
_nodes = Statement(
    "update nodes set started_at = min(started_at, :now), heartbeat_at = min(heartbeat_at, :now),"
    " stopped_at = min(stopped_at, :now) where heartbeat_at > {now}"
)
_last_heartbeat = Statement("select max(heartbeat_at) as at from nodes", result={"at": Moment})


def last_heartbeat(conn: Connection) -> datetime | None:
    """The latest time at which a node of this store ran."""
    at: datetime | None = _last_heartbeat.run(conn)[0].at
    return at


def set_back(conn: Connection, back_s: float, *, now: datetime) -> int:
    """Move all awaited times of an embedded store back by this many seconds; the number of notifications moved."""
    assert conn.dialect.name == "sqlite", "PostgreSQL's own clock decides there"
    moved = {table: len(statement.run(conn, back_s=back_s, now=now)) for table, statement in _MOVING.items()}
    _nodes.run(conn, now=now)
    return moved["notifications"]
