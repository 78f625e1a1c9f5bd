"""What a change of lists or channels means for notifications that wait: their way out may be another one now."""

from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.notifications import breakers as breaker_rows
from fieldpost.central.store.notifications import lists as rows
from fieldpost.core.breaker import channel_key, probe_now
from fieldpost.core.lists import Directory
from fieldpost.core.notification import list_key


def free_moved(conn: Connection, before: Directory, *, now: datetime | None) -> None:
    """What is held behind the breaker of a channel that its list no longer uses comes free."""
    after = rows.directory(conn)
    moved: dict[str, list[str]] = {}
    for name, notification_list in after.lists.items():
        old = before.lists.get(name)
        was = before.channel_of(old) if old is not None else None
        channel = after.channel_of(notification_list)
        if was is not None and channel is not None and was.name != channel.name:
            moved.setdefault(channel.name, []).append(list_key(name))
    for channel_name, keys in moved.items():
        breaker_rows.free_keys(conn, keys, channel_key(channel_name), now=now)


def try_soon(conn: Connection, channel_name: str, *, now: datetime | None) -> None:
    """A channel that was changed may work again: its breaker is due for a probe at once."""
    key = channel_key(channel_name)
    if key in breaker_rows.load(conn, [key]):
        at = database_time(conn, now)
        breaker_rows.change(conn, key, lambda breaker: probe_now(breaker, at))
