"""Waiting for the copy of a new row on the other node, for callers that asked for it in `[pair]`.

The agent stores each acknowledgement of the other node, so a script sees it in its own buffer: no network is involved,
and without an agent the wait ends at its limit.
"""

import threading
from collections.abc import Callable

import apsw

from fieldpost.core.errors import FieldpostError
from fieldpost.link.pair_rows import RowKind
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.pair import pair_state

POLL_S = 0.005

_LACKS_MESSAGE = "SELECT 1 FROM messages WHERE message_id = :id AND sequence > :acked"
_LACKS_CALL = "SELECT 1 FROM changes WHERE kind = 'call' AND id = :id AND number > :acked"


def wait_for_copy(buffer: Buffer, kind: RowKind, row_id: str, wait_ms: int, monotonic: Callable[[], float]) -> bool:
    """Wait up to `wait_ms` until the other node has the row; whether it has. Never raises: the row is safe here."""
    until = monotonic() + wait_ms / 1000
    pause = threading.Event()
    try:
        while not buffer.read(is_copied, kind, row_id):
            left_s = until - monotonic()
            if left_s <= 0:
                return False
            pause.wait(min(POLL_S, left_s))
    except FieldpostError:
        return False
    return True


def is_copied(cursor: apsw.Cursor, kind: RowKind, row_id: str) -> bool:
    """Whether the other node has acknowledged this notification or call, or there is no other node."""
    if pair_state.find(cursor) is None:
        return True
    acked = pair_state.acked(cursor)
    if kind == "message":
        return not cursor.execute(_LACKS_MESSAGE, {"id": row_id, "acked": acked.messages}).fetchall()
    return not cursor.execute(_LACKS_CALL, {"id": row_id, "acked": acked.changes}).fetchall()
