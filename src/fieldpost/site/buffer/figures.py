"""Counts and ages of the messages in the buffer, for status pages and health reports."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import apsw

from fieldpost.core.sites.message import Category
from fieldpost.core.times import from_microseconds, to_microseconds

RECENT = timedelta(hours=1)
EVENTS_MAX = 10_000
"""How many of the newest event log entries a health report counts at most."""

_WAITING = f"""
SELECT '{Category.NOTIFICATION.value}', count(*) - (SELECT count(*) FROM messages WHERE message_id = '') FROM messages
UNION ALL SELECT category, count(*) FROM calls WHERE status <> 'parked' GROUP BY category
"""
_OLDEST_NOTIFICATION = "SELECT created_at FROM messages WHERE status <> 'marker' ORDER BY sequence LIMIT 1"
_OLDEST_CALL = "SELECT created_at FROM calls WHERE status <> 'parked' ORDER BY sequence LIMIT 1"
_OLDEST = f"""
SELECT min(created_at)
FROM (SELECT * FROM ({_OLDEST_NOTIFICATION}) UNION ALL SELECT * FROM ({_OLDEST_CALL}))
"""
_REJECTED = "SELECT count(*) FROM rejected"

_BUFFERED = f"""
SELECT '{Category.NOTIFICATION.value}', count(*) - (SELECT count(*) FROM messages WHERE message_id = '') FROM messages
UNION ALL SELECT category, count(*) FROM calls GROUP BY category
"""
_PARKED = "SELECT category, count(*) FROM tracking WHERE terminal_at IS NULL AND status = 'parked' GROUP BY category"
_OLDEST_TRACKED = "SELECT min(created_at) FROM tracking WHERE terminal_at IS NULL AND status = :status"
_EVENTS = "SELECT severity, occurred_at FROM events ORDER BY sequence DESC LIMIT :limit"


@dataclass(frozen=True, slots=True)
class Depth:
    """The number of waiting messages. Parked calls wait for a person and are counted by their tracking records."""

    waiting: dict[Category, int]
    rejected: int
    oldest_created_at: datetime | None


@dataclass(frozen=True, slots=True)
class BufferFigures:
    """The buffer's part of a health report."""

    backlog: dict[str, int]
    parked: int
    rejected: int
    oldest_created_at: datetime | None
    events: dict[str, int]
    """Event log entries of the last hour, by severity."""


def depth(cursor: apsw.Cursor) -> Depth:
    """The messages that wait, exactly."""
    waiting = {Category(category): count for category, count in cursor.execute(_WAITING) if count}
    oldest: int | None = _rows(cursor, _OLDEST)[0][0]
    return Depth(waiting, _rows(cursor, _REJECTED)[0][0], None if oldest is None else from_microseconds(oldest))


def health_figures(cursor: apsw.Cursor, now: datetime) -> BufferFigures:
    """The figures of a health report. Each statement is answered by an index, however full the buffer is."""
    parked: Counter[str] = Counter(dict(_rows(cursor, _PARKED)))
    backlog = {category: count - parked[category] for category, count in _rows(cursor, _BUFFERED) if count}
    created = [row[0] for row in _rows(cursor, _OLDEST_NOTIFICATION)]
    for status in ("pending", "retrying"):
        created += [row[0] for row in _rows(cursor, _OLDEST_TRACKED, status=status) if row[0] is not None]
    since = to_microseconds(now - RECENT)
    events: Counter[str] = Counter()
    for severity, occurred_at in cursor.execute(_EVENTS, {"limit": EVENTS_MAX}):
        if occurred_at < since:
            break
        events[severity] += 1
    return BufferFigures(
        backlog=backlog,
        parked=parked.total(),
        rejected=_rows(cursor, _REJECTED)[0][0],
        oldest_created_at=from_microseconds(min(created)) if created else None,
        events=dict(events),
    )


def _rows(cursor: apsw.Cursor, statement: str, **parameters: object) -> list[Any]:
    return cursor.execute(statement, parameters).fetchall()
