"""Lists with their targets, and channels."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import structlog
from sqlalchemy import Connection, delete, insert, null, select, update

from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.schema import catalogue
from fieldpost.central.store.schema.list_tables import channels, list_targets, lists
from fieldpost.core.delivery.retry import RetryPolicy, parse, to_text
from fieldpost.core.delivery.routing import Directory
from fieldpost.core.errors import InvalidInput
from fieldpost.core.lists import Channel, NotificationList
from fieldpost.core.notification import LIST_KEY

log = structlog.get_logger()

_remove_targets = Statement(
    "delete from list_targets where list_name = :list_name and address {any:addresses}", lists={"addresses": "text"}
)


def directory(conn: Connection) -> Directory:
    """All lists (without their targets) and channels, as a sweep sees them."""
    return Directory(
        {n.name: n for n in (_list(dict(row)) for row in conn.execute(select(lists)).mappings())},
        {c.name: c for c in all_channels(conn)},
    )


def directory_of(conn: Connection, keys: Collection[str]) -> Directory:
    """The lists of these delivery keys (without their targets), and all channels."""
    if not keys:
        return Directory()
    wanted = select(lists).where(lists.c.list_name.in_([key.removeprefix(LIST_KEY) for key in keys]))
    found = (_list(dict(row)) for row in conn.execute(wanted).mappings())
    return Directory({n.name: n for n in found}, {c.name: c for c in all_channels(conn)})


def all_lists(conn: Connection) -> list[NotificationList]:
    """All lists with their targets, by name."""
    targets: dict[str, list[str]] = {}
    for row in conn.execute(select(list_targets).order_by(list_targets.c.address)):
        targets.setdefault(row.list_name, []).append(row.address)
    found = conn.execute(select(lists).order_by(lists.c.list_name)).mappings()
    return [_list(dict(row), tuple(targets.get(row["list_name"], ()))) for row in found]


def names(conn: Connection, limit: int) -> list[str]:
    """The names of at most so many lists, in their order."""
    return list(conn.execute(select(lists.c.list_name).order_by(lists.c.list_name).limit(limit)).scalars())


def get_list(conn: Connection, name: str) -> NotificationList | None:
    row = conn.execute(select(lists).where(lists.c.list_name == name)).mappings().first()
    if row is None:
        return None
    targets = conn.execute(
        select(list_targets.c.address).where(list_targets.c.list_name == name).order_by(list_targets.c.address)
    )
    return _list(dict(row), tuple(targets.scalars()))


def add_list(conn: Connection, notification_list: NotificationList, now: datetime) -> None:
    catalogue.count_change(conn, catalogue.PATHS)
    conn.execute(
        insert(lists).values(
            list_name=notification_list.name,
            type=notification_list.type,
            created_at=now,
            updated_at=now,
            **_list_values(notification_list),
        )
    )
    _add_targets(conn, notification_list.name, notification_list.targets)


def change_list(conn: Connection, wanted: NotificationList, now: datetime) -> bool:
    """Write all fields except name and type, unless the list has changed since `wanted.version`."""
    catalogue.count_change(conn, catalogue.PATHS)
    changed = (
        update(lists)
        .where(lists.c.list_name == wanted.name, lists.c.version == wanted.version)
        .values(updated_at=now, version=wanted.version + 1, **_list_values(wanted))
    )
    if conn.execute(changed).rowcount != 1:
        return False
    present = select(list_targets.c.address).where(list_targets.c.list_name == wanted.name)
    before = set(conn.execute(present).scalars())
    gone = sorted(before.difference(wanted.targets))
    if gone:
        _remove_targets.run(conn, list_name=wanted.name, addresses=gone)
    _add_targets(conn, wanted.name, [address for address in wanted.targets if address not in before])
    return True


def remove_list(conn: Connection, name: str) -> bool:
    """Remove a list; its notifications keep the targets fixed at their first attempt."""
    catalogue.count_change(conn, catalogue.PATHS)
    conn.execute(delete(list_targets).where(list_targets.c.list_name == name))
    return conn.execute(delete(lists).where(lists.c.list_name == name)).rowcount == 1


def all_channels(conn: Connection) -> list[Channel]:
    found = conn.execute(select(channels).order_by(channels.c.channel_name)).mappings()
    return [_channel(dict(row)) for row in found]


def get_channel(conn: Connection, name: str) -> Channel | None:
    row = conn.execute(select(channels).where(channels.c.channel_name == name)).mappings().first()
    return _channel(dict(row)) if row else None


def add_channel(conn: Connection, channel: Channel, now: datetime) -> None:
    """Add a channel; a new default replaces the present default of its type."""
    catalogue.count_change(conn, catalogue.PATHS)
    if channel.is_default:
        conn.execute(update(channels).where(channels.c.type == channel.type).values(is_default=False))
    conn.execute(
        insert(channels).values(
            channel_name=channel.name,
            type=channel.type,
            settings=dict(channel.settings),
            secrets=dict(channel.secrets),
            **_channel_retry(channel),
            is_default=channel.is_default,
            created_at=now,
            updated_at=now,
        )
    )


def change_channel(conn: Connection, channel: Channel, now: datetime) -> bool:
    """Write all fields except name and type, unless the channel has changed since `channel.version`.

    A new default replaces the present default of its type.
    """
    catalogue.count_change(conn, catalogue.PATHS)
    if channel.is_default:
        others = channels.c.channel_name != channel.name
        conn.execute(update(channels).where(channels.c.type == channel.type, others).values(is_default=False))
    changed = (
        update(channels)
        .where(channels.c.channel_name == channel.name, channels.c.version == channel.version)
        .values(
            settings=dict(channel.settings),
            secrets=dict(channel.secrets),
            **_channel_retry(channel),
            is_default=channel.is_default,
            updated_at=now,
            version=channel.version + 1,
        )
    )
    return conn.execute(changed).rowcount == 1


def remove_channel(conn: Connection, name: str) -> bool:
    catalogue.count_change(conn, catalogue.PATHS)
    return conn.execute(delete(channels).where(channels.c.channel_name == name)).rowcount == 1


def channels_after(conn: Connection, name: str, limit: int) -> Sequence[Channel]:
    """The next channels after this name, for processing all of them in batches."""
    found = conn.execute(
        select(channels).where(channels.c.channel_name > name).order_by(channels.c.channel_name).limit(limit)
    ).mappings()
    return [_channel(dict(row)) for row in found]


def reseal_channel(conn: Connection, channel: Channel) -> bool:
    """Write the same secrets under another key, unless the channel has changed; its version stays."""
    catalogue.count_change(conn, catalogue.PATHS)
    changed = (
        update(channels)
        .where(channels.c.channel_name == channel.name, channels.c.version == channel.version)
        .values(secrets=dict(channel.secrets))
    )
    return conn.execute(changed).rowcount == 1


def _list_values(notification_list: NotificationList) -> dict[str, object]:
    allowed = notification_list.allowed_sites
    return {
        "channel_name": notification_list.channel_name,
        "park_uncertain": notification_list.park_uncertain,
        "retry": notification_list.retry and to_text(notification_list.retry),
        "allowed_sites": null() if allowed is None else list(allowed),
    }


def _add_targets(conn: Connection, name: str, addresses: Collection[str]) -> None:
    rows = [{"list_name": name, "address": address} for address in addresses]
    if rows:
        conn.execute(insert(list_targets), rows)


def _list(row: Mapping[str, object], targets: tuple[str, ...] = ()) -> NotificationList:
    allowed = row["allowed_sites"]
    return NotificationList(
        name=str(row["list_name"]),
        type=str(row["type"]),
        channel_name=None if row["channel_name"] is None else str(row["channel_name"]),
        targets=targets,
        park_uncertain=bool(row["park_uncertain"]),
        version=int(str(row["version"])),
        retry=_retry(row["retry"]),
        # A value edited by hand that is not a list must not allow every site.
        allowed_sites=None if allowed is None else tuple(map(str, allowed)) if isinstance(allowed, list) else (),
    )


def _channel_retry(channel: Channel) -> dict[str, object]:
    return {
        "max_retries": channel.max_retries,
        "retry_delay_s": channel.retry_delay_s,
        "retry": channel.retry and to_text(channel.retry),
    }


def _channel(row: Mapping[str, object]) -> Channel:
    settings = row["settings"]
    sealed = row["secrets"]
    assert isinstance(settings, dict), "the column holds an object"
    return Channel(
        name=str(row["channel_name"]),
        type=str(row["type"]),
        settings=settings,
        is_default=bool(row["is_default"]),
        version=int(str(row["version"])),
        retry=_retry(row["retry"]),
        # Not converted: SQLite returns what was written by hand, and the policy replaces values out of range.
        max_retries=row["max_retries"],  # type: ignore[arg-type]
        retry_delay_s=row["retry_delay_s"],  # type: ignore[arg-type]
        secrets={str(k): str(v) for k, v in sealed.items()} if isinstance(sealed, dict) else {},
    )


def _retry(text: object) -> RetryPolicy | None:
    """The stored policy; None for an invalid one, edited by hand."""
    try:
        return None if text is None else parse(text)
    except InvalidInput as error:
        log.warning("retry.ignored", error=error.message)
        return None
