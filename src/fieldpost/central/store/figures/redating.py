"""Times that a node waits for, moved after the clock of an embedded store was set back.

History (arrivals, attempts, audit entries) keeps its times. Only times beyond the new time are moved: the others are
due, or were stored after the step.
"""

from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.store.engine.column_types import Moment
from fieldpost.central.store.engine.statement import Statement


def _moved(*columns: str) -> str:
    return ", ".join(
        f"{one} = case when {one} > :now then {one} - cast(:back_s * 1000000 as integer) else {one} end"
        for one in columns
    )


_notifications = Statement(
    f"""
    update notifications set {_moved("due_at", "next_attempt_at", "lease_until")}
    where due_at > {{now}} or lease_until > {{now}} returning 1
    """
)
_others = (
    Statement(
        f"""
        update breakers set {_moved("first_failure_at", "last_failure_at", "open_until", "probe_until")}
        where coalesce(open_until, probe_until, last_failure_at) > {{now}}
        """
    ),
    Statement(f"update bulk_actions set {_moved('due_at')} where ended_at is null and due_at > {{now}}"),
    Statement(f"update login_delays set {_moved('failed_at', 'free_at')} where free_at > {{now}}"),
    Statement(
        "update nodes set started_at = min(started_at, :now), heartbeat_at = min(heartbeat_at, :now),"
        " stopped_at = min(stopped_at, :now) where heartbeat_at > {now}"
    ),
)
_last_heartbeat = Statement("select max(heartbeat_at) as at from nodes", result={"at": Moment})


def last_heartbeat(conn: Connection) -> datetime | None:
    """The latest time at which a node of this store ran."""
    at: datetime | None = _last_heartbeat.run(conn)[0].at
    return at


def set_back(conn: Connection, back_s: float, *, now: datetime) -> int:
    """Move all awaited times of an embedded store back by this many seconds; the number of notifications moved."""
    assert conn.dialect.name == "sqlite", "PostgreSQL's own clock decides there"
    moved = len(_notifications.run(conn, back_s=back_s, now=now))
    for statement in _others:
        statement.run(conn, back_s=back_s, now=now)
    return moved
