"""The site's event log, for people at the site: messages queued, delivered, retried, parked and rejected.

An entry is written in the transaction of its event, so the log never reports an event that did not happen. It has all
events of cached calls, but only failures of notifications, whose record central keeps, unless `[events]` asks for all.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

import apsw

from fieldpost.core.search.filters import SITE_EVENT_FILTERS, TextFilter
from fieldpost.core.search.tokens import tokenize
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteEventFilter(TextFilter):
    """Criteria for entries (`core.search.filters.SITE_EVENT_FILTERS`); None matches all."""

    declared = SITE_EVENT_FILTERS

    kind: str | None = None
    severity: EventSeverity | None = None
    category: Category | None = None
    message_id: str | None = None
    target: str | None = None
    instance: str | None = None
    script: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    words: str = ""
    """Words that must all occur in the text, in any case (`core.search.tokens`)."""


_EVENT = RowType(SiteEvent)

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
    rows = [_EVENT.parameters(entry) | {"text": truncate(entry.text, TEXT_BYTES_MAX)} for entry in events]
    if rows:
        cursor.executemany(_APPEND, rows)


def query(
    cursor: apsw.Cursor, wanted: SiteEventFilter | None = None, *, before: int | None = None, limit: int = 100
) -> list[SiteEvent]:
    """The newest matching entries, newest first; `before` is the last sequence of the previous page."""
    wanted = wanted or SiteEventFilter()
    terms, parameters = ["sequence < :before"], dict[str, Any](before=before or 1 << 62)
    for column in ("kind", "severity", "category", "message_id", "target", "instance", "script"):
        value = getattr(wanted, column)
        if value is not None:
            terms.append(f"{column} = :{column}")
            parameters[column] = str(value)
    for name, sign in (("since", ">="), ("until", "<")):
        moment = getattr(wanted, name)
        if moment is not None:
            terms.append(f"occurred_at {sign} :{name}")
            parameters[name] = to_microseconds(moment)
    statement = f"SELECT {_EVENT.columns} FROM events WHERE {' AND '.join(terms)} ORDER BY sequence DESC"
    found: Iterator[SiteEvent] = map(_EVENT.read, cursor.execute(statement, parameters))
    if words := set(tokenize(wanted.words)):
        # Matched here, with the tokenizer that is used everywhere; the log is bounded, so the scan is quick.
        found = filter(lambda entry: words <= set(tokenize(entry.text)), found)
    return list(islice(found, limit))


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
