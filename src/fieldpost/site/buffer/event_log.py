"""The site's event log, for people at the site: messages queued, delivered, retried, parked and rejected.

An entry is written in the transaction of its event, so the log never reports an event that did not happen. It has all
events of cached calls, but only failures of notifications, whose record central keeps, unless `[events]` asks for all.
`event_queries` reads it; scripts only write, and start faster without the filters.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import apsw

from fieldpost.core.sites.message import Category
from fieldpost.core.sites.site_event import EventSeverity, SiteEventKind
from fieldpost.core.text import truncate
from fieldpost.core.times import to_microseconds
from fieldpost.site.buffer.rows import RowType

TEXT_BYTES_MAX = 1024
ROW_BYTES = 200
"""The approximate size of an entry without its text, for the size limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteEvent:
    """One entry of the log."""

    occurred_at: datetime
    kind: str
    severity: EventSeverity
    text: str
    category: Category | None = None
    message_id: str | None = None
    target: str | None = None
    instance: str | None = None
    script: str | None = None
    sequence: int = 0
    """Assigned when it is written; increases and is never reused."""


EVENT_ROW = RowType(SiteEvent)

_APPEND = """
INSERT INTO events (occurred_at, kind, severity, category, message_id, target, instance, script, text)
VALUES (:occurred_at, :kind, :severity, :category, :message_id, :target, :instance, :script, :text)
"""

_EXPIRED = """
SELECT coalesce(max(sequence), 0)
FROM (SELECT sequence FROM events WHERE occurred_at < :before ORDER BY sequence LIMIT :most)
"""
_SIZE = f"SELECT count(*), coalesce(sum(octet_length(text) + {ROW_BYTES}), 0) FROM events"
_OLDEST = f"SELECT sequence, octet_length(text) + {ROW_BYTES} FROM events ORDER BY sequence"
_DELETE = "DELETE FROM events WHERE sequence <= :last"


def event(kind: SiteEventKind, now: datetime, text: str, **fields: Any) -> SiteEvent:
    """An entry of this kind, with the kind's severity."""
    return SiteEvent(occurred_at=now, kind=kind.value, severity=kind.severity, text=text, **fields)


def append(cursor: apsw.Cursor, events: Iterable[SiteEvent]) -> None:
    """Write entries in the transaction of the cursor."""
    rows = [EVENT_ROW.parameters(entry) | {"text": truncate(entry.text, TEXT_BYTES_MAX)} for entry in events]
    if rows:
        cursor.executemany(_APPEND, rows)


def size(cursor: apsw.Cursor) -> tuple[int, int]:
    """The number of entries and their approximate size in bytes."""
    rows: list[Any] = cursor.execute(_SIZE).fetchall()
    return rows[0][0], rows[0][1]


def trim(cursor: apsw.Cursor, before: datetime, bytes_max: int, *, most: int = 5_000) -> int:
    """Delete up to `most` entries: those before this time, and the oldest beyond the size limit. Returns how many."""
    rows: list[Any] = cursor.execute(_EXPIRED, {"before": to_microseconds(before), "most": most}).fetchall()
    last: int = rows[0][0]
    excess = size(cursor)[1] - bytes_max
    if excess > 0:
        last = max(last, _end_of_excess(cursor, excess, most))
    if not last:
        return 0
    cursor.execute(_DELETE, {"last": last})
    return cursor.connection.changes()


def _end_of_excess(cursor: apsw.Cursor, excess: int, most: int) -> int:
    last = 0
    for number, (sequence, octets) in enumerate(cursor.execute(_OLDEST)):
        if excess <= 0 or number >= most:
            break
        last = sequence
        excess -= octets
    return last
