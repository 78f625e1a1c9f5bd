"""The rejected box: notifications that central refused for good, until a person resubmits or discards them."""

from datetime import datetime

import apsw

from fieldpost.core.sites.message import Category, RejectedMessage
from fieldpost.core.sites.site_event import SiteEventKind
from fieldpost.core.times import to_microseconds
from fieldpost.site.buffer import event_log
from fieldpost.site.buffer.rows import REJECTED

_PAGE = f"""
SELECT {REJECTED.columns} FROM rejected
WHERE (rejected_at, message_id) > (:rejected_at, :message_id) ORDER BY rejected_at, message_id LIMIT :limit
"""
_TAKE_OUT = f"DELETE FROM rejected WHERE message_id = :message_id RETURNING {REJECTED.columns}"
# With the same id and content, which central accepts once, and a new retry count.
_PUT_BACK = """
INSERT INTO messages (message_id, category, target, payload, created_at)
VALUES (:message_id, :category, :target, :payload, :created_at)
ON CONFLICT (message_id) DO NOTHING
"""


def page(cursor: apsw.Cursor, after: tuple[int, str] | None = None, *, limit: int = 100) -> list[RejectedMessage]:
    """One page of the box, oldest first; `after` is the key of the last entry of the previous page."""
    rejected_at, message_id = after or (-(1 << 62), "")
    parameters = {"rejected_at": rejected_at, "message_id": message_id, "limit": limit}
    return [REJECTED.read(row) for row in cursor.execute(_PAGE, parameters)]


def key_of(message: RejectedMessage) -> tuple[int, str]:
    """The page key of this entry, for `page`."""
    return to_microseconds(message.rejected_at), message.message_id


def resubmit(cursor: apsw.Cursor, message_id: str, now: datetime, by: str | None = None) -> bool:
    """Put the notification back into the queue, due immediately; whether it was in the box."""
    taken = _take_out(cursor, message_id)
    if taken is None:
        return False
    cursor.execute(_PUT_BACK, REJECTED.parameters(taken))
    _log_action(cursor, SiteEventKind.REQUEUED, taken, now, by)
    return True


def discard(cursor: apsw.Cursor, message_id: str, now: datetime, by: str | None = None) -> bool:
    """Discard the notification for good; whether it was in the box."""
    taken = _take_out(cursor, message_id)
    if taken is None:
        return False
    _log_action(cursor, SiteEventKind.DISCARDED, taken, now, by)
    return True


def _take_out(cursor: apsw.Cursor, message_id: str) -> RejectedMessage | None:
    rows = cursor.execute(_TAKE_OUT, {"message_id": message_id}).fetchall()
    return REJECTED.read(rows[0]) if rows else None


def _log_action(
    cursor: apsw.Cursor, kind: SiteEventKind, taken: RejectedMessage, now: datetime, by: str | None
) -> None:
    text = f"by {by or 'an operator'}; central had refused it: {taken.code}"
    entry = event_log.event(
        kind, now, text, category=Category.NOTIFICATION, message_id=taken.message_id, target=taken.target
    )
    event_log.append(cursor, [entry])
