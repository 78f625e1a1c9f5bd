"""The commands of central that were applied at this site, so that a repeated one is answered and not applied again."""

from datetime import datetime
from typing import Any

import apsw

from fieldpost.core.times import to_microseconds

RETENTION_DAYS = 60.0
"""How long an applied command is remembered: twice as long as central repeats one."""

_FIND = "SELECT outcome, detail FROM commands WHERE intent_id = :intent_id"
_INSERT = """
INSERT INTO commands (intent_id, outcome, detail, applied_at) VALUES (:intent_id, :outcome, :detail, :applied_at)
"""
_PURGE = """
DELETE FROM commands WHERE intent_id IN (
    SELECT intent_id FROM commands WHERE applied_at < :before LIMIT :limit
)
"""


def find(cursor: apsw.Cursor, intent_id: str) -> tuple[str, str | None] | None:
    """Outcome and detail of the command with this intent id; None if it was not applied yet."""
    rows: list[Any] = cursor.execute(_FIND, {"intent_id": intent_id}).fetchall()
    return rows[0] if rows else None


def insert(cursor: apsw.Cursor, intent_id: str, outcome: str, detail: str | None, now: datetime) -> None:
    """Record an applied command, in the transaction that applies it."""
    given = {"intent_id": intent_id, "outcome": outcome, "detail": detail, "applied_at": to_microseconds(now)}
    cursor.execute(_INSERT, given)


def purge(cursor: apsw.Cursor, before: datetime, limit: int = 1_000) -> int:
    """Delete up to `limit` commands applied before this time; returns how many."""
    cursor.execute(_PURGE, {"before": to_microseconds(before), "limit": limit})
    return cursor.connection.changes()
