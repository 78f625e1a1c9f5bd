"""Effects of a changed list or channel on waiting notifications: their channel may be another one now."""

from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.notifications import breakers as breaker_rows
from fieldpost.central.store.notifications import lists as rows
from fieldpost.core.breaker import channel_key, probe_now
from fieldpost.core.lists import Directory
from fieldpost.core.notification import list_key


def release_rerouted(conn: Connection, before: Directory, *, now: datetime | None) -> None:
    """Release notifications held behind the breaker of a channel that their list no longer uses."""
    after = rows.directory(conn)
    moved: dict[str, list[str]] = {}
    for name, notification_list in after.lists.items():
        old = before.lists.get(name)
        old_channel = before.channel_of(old) if old is not None else None
        channel = after.channel_of(notification_list)
        if old_channel is not None and channel is not None and old_channel.name != channel.name:
            moved.setdefault(channel.name, []).append(list_key(name))
    for channel_name, keys in moved.items():
        breaker_rows.free_keys(conn, keys, channel_key(channel_name), now=now)


def probe_soon(conn: Connection, channel_name: str, *, now: datetime | None) -> None:
    """Make the breaker of a changed channel due for a probe: the channel may work again."""
    key = channel_key(channel_name)
    if key in breaker_rows.load(conn, [key]):
        at = database_time(conn, now)
        breaker_rows.change(conn, key, lambda breaker: probe_now(breaker, at))
