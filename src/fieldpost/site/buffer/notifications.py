"""The queue of notifications: SQL on `messages`, and the move of refused ones to the rejected box."""

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import apsw

from fieldpost.core.sites.forwarding import WAIT_MAX, Box, Clear, Decision, TryAgain
from fieldpost.core.sites.message import CENTRAL, Category, Message, RejectedMessage
from fieldpost.core.sites.site_event import SiteEventKind
from fieldpost.core.times import from_microseconds, to_microseconds
from fieldpost.site.buffer import event_log
from fieldpost.site.buffer.event_log import SiteEvent
from fieldpost.site.buffer.rows import CALL_COLUMNS, MESSAGE, NOTIFICATION_COLUMNS, REJECTED, Outgoing, Rows

NEW_ROWS = Rows(
    "messages",
    ("message_id", "payload", "created_at"),
    {"category": f"'{Category.NOTIFICATION.value}'", "target": f"'{CENTRAL}'"},
)

# In commit order. A due time further away than the longest wait results from a jump of the clock and counts as due.
_TAKE = f"""
SELECT sequence, message_id, payload, octet_length(payload) FROM messages
WHERE sequence > :after AND status <> 'marker' AND (due_at <= :now OR due_at > :now + {WAIT_MAX.seconds * 1_000_000})
ORDER BY sequence LIMIT :items_max
"""

_FIND = f"""
SELECT {NOTIFICATION_COLUMNS} FROM messages WHERE message_id = :message_id
UNION ALL SELECT {CALL_COLUMNS} FROM calls WHERE message_id = :message_id
"""
_FIND_REJECTED = f"SELECT {REJECTED.columns} FROM rejected WHERE message_id = :message_id"
_OLDEST = "SELECT created_at FROM messages WHERE status <> 'marker' ORDER BY sequence LIMIT 1"

# One statement for all rows: each step of a statement lets other threads run in between.
_CLEAR = "DELETE FROM messages WHERE message_id IN (SELECT value FROM json_each(:message_ids))"

_BOX = f"""
INSERT INTO rejected ({REJECTED.columns})
SELECT message_id, category, target, payload, :code, :error, retry_count, created_at, :now
FROM messages WHERE message_id = :message_id
ON CONFLICT (message_id) DO NOTHING
"""

_TRY_AGAIN = """
UPDATE messages
SET status = 'retrying', retry_count = retry_count + 1, last_error = :error, last_attempt_at = :now, due_at = :due_at
WHERE message_id = :message_id
"""


def take(cursor: apsw.Cursor, now: datetime, *, items_max: int, bytes_max: int, after: int = 0) -> list[Outgoing]:
    """The oldest due notifications with a sequence above `after`, up to both limits but at least one."""
    taken: list[Outgoing] = []
    size = 0
    parameters = {"now": to_microseconds(now), "items_max": items_max, "after": after}
    for sequence, message_id, payload, payload_bytes in cursor.execute(_TAKE, parameters):
        size += payload_bytes
        if taken and size > bytes_max:
            break
        taken.append(Outgoing(sequence, message_id, payload))
    return taken


def settling(
    decisions: Sequence[tuple[str, Decision]], now: datetime, *, logs_all: bool
) -> Callable[[apsw.Cursor], None]:
    """The transaction that applies these decisions, prepared outside of it to keep it short.

    `logs_all` logs deliveries and retries too, not only refusals.
    """
    cleared: list[str] = []
    boxed: list[dict[str, str | int]] = []
    again: list[dict[str, str | int]] = []
    events: list[SiteEvent] = []
    moment = to_microseconds(now)
    for message_id, decision in decisions:
        match decision:
            case Clear():
                cleared.append(message_id)
                if logs_all:
                    events.append(notification_event(SiteEventKind.DELIVERED, now, "accepted by central", message_id))
            case Box(code=code, error=error):
                boxed.append({"message_id": message_id, "code": code, "error": error, "now": moment})
                cleared.append(message_id)
                events.append(notification_event(SiteEventKind.REJECTED, now, f"{code}: {error}", message_id))
            case TryAgain(due_at=due_at, error=error):
                due = to_microseconds(due_at)
                again.append({"message_id": message_id, "error": error, "now": moment, "due_at": due})
                if logs_all:
                    events.append(notification_event(SiteEventKind.RETRIED, now, error, message_id))

    def work(cursor: apsw.Cursor) -> None:
        # Box before clearing: boxing copies the row.
        if boxed:
            cursor.executemany(_BOX, boxed)
        if cleared:
            cursor.execute(_CLEAR, {"message_ids": json.dumps(cleared)})
        if again:
            cursor.executemany(_TRY_AGAIN, again)
        event_log.append(cursor, events)

    return work


def find(cursor: apsw.Cursor, message_id: str) -> Message | RejectedMessage | None:
    """The waiting message, of any category, or the rejected notification with this id."""
    # Both statements must see the same snapshot: the message could move to the box between them.
    cursor.execute("BEGIN")
    try:
        row = cursor.execute(_FIND, {"message_id": message_id}).fetchone()
        if row is not None:
            return MESSAGE.read(row)
        row = cursor.execute(_FIND_REJECTED, {"message_id": message_id}).fetchone()
        return None if row is None else REJECTED.read(row)
    finally:
        cursor.execute("COMMIT")


def oldest(cursor: apsw.Cursor) -> datetime | None:
    """When the notification that has waited longest was added; None for an empty queue."""
    rows: list[tuple[Any, ...]] = cursor.execute(_OLDEST).fetchall()
    return from_microseconds(rows[0][0]) if rows else None


def notification_event(kind: SiteEventKind, now: datetime, text: str, message_id: str) -> SiteEvent:
    return event_log.event(kind, now, text, category=Category.NOTIFICATION, message_id=message_id)
