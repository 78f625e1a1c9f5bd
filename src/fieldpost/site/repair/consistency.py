"""Makes messages and tracking records consistent after rows were added by a salvage or an import.

An ended call has no message, so that it is not made again; every other call has a message and a record. Each changed
record gets a new change sequence, so that central is informed.
"""

from datetime import datetime

import apsw

from fieldpost.core.times import to_microseconds

_COUNT_ON = """
UPDATE facts SET value = max(value, (SELECT coalesce(max(change_sequence), 0) FROM tracking))
WHERE name = 'change_sequence'
"""

_DROP_ENDED = """
DELETE FROM calls WHERE message_id IN (SELECT call_id FROM tracking WHERE terminal_at IS NOT NULL)
"""

_TRACK_UNTRACKED = """
INSERT INTO tracking (call_id, category, target_summary, status, retry_count, last_error, created_at, updated_at,
    version, change_sequence)
SELECT message_id, category, target, status, retry_count,
    coalesce(last_error, CASE status WHEN 'parked' THEN 'parked; the reason was not kept' END), created_at, :now,
    max(1, (SELECT value FROM facts WHERE name = 'change_sequence') >> 32 << 32),
    (SELECT value FROM facts WHERE name = 'change_sequence') + row_number() OVER (ORDER BY sequence)
FROM calls
WHERE message_id NOT IN (SELECT call_id FROM tracking)
"""

_END_LOST = """
UPDATE tracking
SET status = 'failed', terminal_at = :now, updated_at = :now,
    version = max(version + 1, (SELECT value FROM facts WHERE name = 'change_sequence') >> 32 << 32),
    last_error = 'the message is lost; whether the call was made is unknown',
    change_sequence = (SELECT value FROM facts WHERE name = 'change_sequence') + later.place
FROM (
    SELECT call_id AS id, row_number() OVER (ORDER BY change_sequence) AS place FROM tracking
    WHERE terminal_at IS NULL AND call_id NOT IN (SELECT message_id FROM calls)
) AS later
WHERE later.id = call_id
"""

_STEPS = (_DROP_ENDED, _COUNT_ON, _TRACK_UNTRACKED, _COUNT_ON, _END_LOST, _COUNT_ON)


def make_consistent(cursor: apsw.Cursor, now: datetime) -> None:
    """Make messages and records consistent, in the transaction of the cursor."""
    for statement in _STEPS:
        cursor.execute(statement, {"now": to_microseconds(now)} if ":now" in statement else None)
