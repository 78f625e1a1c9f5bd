"""What a person at the site does with the rejected box: send a message once more, or give it up."""

from datetime import datetime

import apsw

from fieldpost.core.message import Category
from fieldpost.site import events
from fieldpost.site.events import EventKind

# Under its own id: central takes it for what it is, whatever became of the first.
_RESUBMIT = """
INSERT INTO messages (message_id, category, target, payload, created_at)
SELECT message_id, category, target, payload, created_at FROM rejected WHERE message_id = :message_id
ON CONFLICT (message_id) DO NOTHING
"""
_REMOVE = "DELETE FROM rejected WHERE message_id = :message_id RETURNING code"


def resubmit(cursor: apsw.Cursor, message_id: str, now: datetime, by: str) -> bool:
    """Put a rejected notification back into the queue, due at once; whether it was in the box."""
    cursor.execute(_RESUBMIT, {"message_id": message_id})
    return _leave(cursor, EventKind.REQUEUED, message_id, now, by)


def discard(cursor: apsw.Cursor, message_id: str, now: datetime, by: str) -> bool:
    """Give a rejected notification up for good; whether it was in the box."""
    return _leave(cursor, EventKind.DISCARDED, message_id, now, by)


def _leave(cursor: apsw.Cursor, kind: EventKind, message_id: str, now: datetime, by: str) -> bool:
    rows = cursor.execute(_REMOVE, {"message_id": message_id}).fetchall()
    if rows:
        text = f"by {by}; central had refused it: {rows[0][0]}"
        entry = events.event(kind, now, text, category=Category.NOTIFICATION, message_id=message_id)
        events.append(cursor, [entry])
    return bool(rows)
