"""Effects of a changed or tested channel, or of a changed list, on breakers and waiting notifications."""

from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.notifications import breakers as breaker_rows
from fieldpost.central.store.notifications import lists as rows
from fieldpost.core.delivery.breaker import channel_key, note_tried, probe_now
from fieldpost.core.delivery.routing import Directory, moved_keys


def release_rerouted(conn: Connection, before: Directory, *, now: datetime | None) -> None:
    """Release notifications held behind the breaker of a channel that their list no longer uses."""
    for breaker_key, keys in moved_keys(before, rows.directory(conn)).items():
        breaker_rows.free_keys(conn, keys, breaker_key, now=now)


def probe_soon(conn: Connection, channel_name: str, *, now: datetime | None) -> None:
    """Make the breaker of a changed channel due for a probe: the channel may work again."""
    key = channel_key(channel_name)
    if key in breaker_rows.load(conn, [key]):
        at = database_time(conn, now)
        breaker_rows.change(conn, key, lambda breaker: probe_now(breaker, at))


def mark_tried(conn: Connection, channel_name: str) -> None:
    """Give the channel's breaker a row, since a test has succeeded; its state does not change."""
    breaker_rows.change(conn, channel_key(channel_name), note_tried)
