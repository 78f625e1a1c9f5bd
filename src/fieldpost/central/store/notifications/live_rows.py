"""The live notifications of one subscription: for draining, and to try them at once."""

from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.store.engine.column_types import Id
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.schema.notification_tables import IS_LIVE_OF_EVENT

HURRY_S = 2.0
"""Longer than nodes keep former settings (`[dispatch] refresh_s`): at once, an attempt would use those."""

# A claim whose lease has expired belongs to a dead node: nobody else ends it, since nothing claims these keys.
_end_claims = Statement(
    f"""
    update notifications set claim_owner = null, lease_until = null
    where {IS_LIVE_OF_EVENT} and delivery_key = :key and lease_until <= {{now}}
    """
)
_live = Statement(
    f"""
    select notification_id from notifications
    where {IS_LIVE_OF_EVENT} and delivery_key = :key and claim_owner is null
    order by notification_id limit :limit
    """,
    result={"notification_id": Id},
)
# The time of a retry, not of a hold: those have their own ends.
_hurry = Statement(
    f"""
    update notifications set next_attempt_at = {{now+wait_s}}, due_at = {{now+wait_s}}, version = version + 1
    where {IS_LIVE_OF_EVENT} and delivery_key = :key and is_timed and held_by is null and claim_owner is null
        and next_attempt_at > {{now+wait_s}}
    """
)
_any_live = Statement(f"select 1 as found from notifications where {IS_LIVE_OF_EVENT} and delivery_key = :key limit 1")


def waiting(conn: Connection, delivery_key: str, limit: int, *, now: datetime | None) -> list[str]:
    """Ids of live rows that no node works on."""
    _end_claims.run(conn, key=delivery_key, now=now)
    return [row.notification_id for row in _live.run(conn, key=delivery_key, limit=limit)]


def hurry(conn: Connection, delivery_key: str, *, now: datetime | None) -> None:
    """Make rows due in HURRY_S that wait for the time of their next attempt."""
    _hurry.run(conn, key=delivery_key, wait_s=HURRY_S, now=now)


def has_any(conn: Connection, delivery_key: str) -> bool:
    """Whether the key has live rows, in flight or not."""
    return bool(_any_live.run(conn, key=delivery_key))
