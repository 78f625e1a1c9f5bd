"""Lists, their targets, and channels."""

from collections.abc import Collection, Mapping
from datetime import datetime

import structlog
from sqlalchemy import Connection, Text, delete, insert, select, update

from fieldpost.central.store.statement import Statement
from fieldpost.central.store.tables import channels, list_targets, lists
from fieldpost.core.errors import InvalidInput
from fieldpost.core.lists import Channel, Directory, NotificationList
from fieldpost.core.retry import RetryPolicy, parse, to_text

log = structlog.get_logger()

_types = Statement(
    "select list_name, type from lists where list_name {any:names}",
    lists={"names": "text"},
    result={"list_name": Text, "type": Text},
)


def types_of(conn: Connection, names: Collection[str]) -> dict[str, str]:
    """The types of those of these lists that exist."""
    return {row.list_name: row.type for row in _types.run(conn, names=list(names))}


def directory(conn: Connection) -> Directory:
    """All lists (without their targets) and channels, as a sweep sees them."""
    return Directory(
        {n.name: n for n in (_list(dict(row)) for row in conn.execute(select(lists)).mappings())},
        {c.name: c for c in all_channels(conn)},
    )


def all_lists(conn: Connection) -> list[NotificationList]:
    """All lists with their targets, by name."""
    targets: dict[str, list[str]] = {}
    for row in conn.execute(select(list_targets).order_by(list_targets.c.address)):
        targets.setdefault(row.list_name, []).append(row.address)
    found = conn.execute(select(lists).order_by(lists.c.list_name)).mappings()
    return [_list(dict(row), tuple(targets.get(row["list_name"], ()))) for row in found]


def get_list(conn: Connection, name: str) -> NotificationList | None:
    row = conn.execute(select(lists).where(lists.c.list_name == name)).mappings().first()
    if row is None:
        return None
    targets = conn.execute(
        select(list_targets.c.address).where(list_targets.c.list_name == name).order_by(list_targets.c.address)
    )
    return _list(dict(row), tuple(targets.scalars()))


def add_list(conn: Connection, notification_list: NotificationList, now: datetime) -> None:
    conn.execute(
        insert(lists).values(
            list_name=notification_list.name,
            type=notification_list.type,
            channel_name=notification_list.channel_name,
            park_uncertain=notification_list.park_uncertain,
            retry=notification_list.retry and to_text(notification_list.retry),
            created_at=now,
            updated_at=now,
        )
    )
    rows = [{"list_name": notification_list.name, "address": address} for address in notification_list.targets]
    if rows:
        conn.execute(insert(list_targets), rows)


def remove_list(conn: Connection, name: str) -> bool:
    """Remove a list; what was sent to it keeps the targets fixed at its first attempt."""
    conn.execute(delete(list_targets).where(list_targets.c.list_name == name))
    return conn.execute(delete(lists).where(lists.c.list_name == name)).rowcount == 1


def all_channels(conn: Connection) -> list[Channel]:
    found = conn.execute(select(channels).order_by(channels.c.channel_name)).mappings()
    return [_channel(dict(row)) for row in found]


def get_channel(conn: Connection, name: str) -> Channel | None:
    row = conn.execute(select(channels).where(channels.c.channel_name == name)).mappings().first()
    return _channel(dict(row)) if row else None


def add_channel(conn: Connection, channel: Channel, now: datetime) -> None:
    """Add a channel; as the default of its type it takes that place from any other."""
    if channel.is_default:
        conn.execute(update(channels).where(channels.c.type == channel.type).values(is_default=False))
    conn.execute(
        insert(channels).values(
            channel_name=channel.name,
            type=channel.type,
            settings=dict(channel.settings),
            retry=channel.retry and to_text(channel.retry),
            is_default=channel.is_default,
            created_at=now,
            updated_at=now,
        )
    )


def change_channel(conn: Connection, channel: Channel, now: datetime) -> bool:
    """Write new settings if nobody changed the channel since `channel.version` was read."""
    changed = (
        update(channels)
        .where(channels.c.channel_name == channel.name, channels.c.version == channel.version)
        .values(
            settings=dict(channel.settings),
            retry=channel.retry and to_text(channel.retry),
            updated_at=now,
            version=channel.version + 1,
        )
    )
    return conn.execute(changed).rowcount == 1


def remove_channel(conn: Connection, name: str) -> bool:
    return conn.execute(delete(channels).where(channels.c.channel_name == name)).rowcount == 1


def _list(row: Mapping[str, object], targets: tuple[str, ...] = ()) -> NotificationList:
    return NotificationList(
        name=str(row["list_name"]),
        type=str(row["type"]),
        channel_name=None if row["channel_name"] is None else str(row["channel_name"]),
        targets=targets,
        park_uncertain=bool(row["park_uncertain"]),
        version=int(str(row["version"])),
        retry=_retry(row["retry"]),
    )


def _channel(row: Mapping[str, object]) -> Channel:
    settings = row["settings"]
    assert isinstance(settings, dict), "the column holds an object"
    return Channel(
        name=str(row["channel_name"]),
        type=str(row["type"]),
        settings=settings,
        is_default=bool(row["is_default"]),
        version=int(str(row["version"])),
        retry=_retry(row["retry"]),
    )


def _retry(text: object) -> RetryPolicy | None:
    """The stored policy; one that somebody wrote there by hand and that is none counts as not given."""
    try:
        return None if text is None else parse(text)
    except InvalidInput as error:
        log.warning("retry.ignored", error=error.message)
        return None
