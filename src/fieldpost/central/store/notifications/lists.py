"""Lists with their targets, and channels."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import structlog
from sqlalchemy import Connection, Text, delete, insert, null, select, update

from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.schema import catalogue
from fieldpost.central.store.schema.list_tables import channels, list_targets, lists
from fieldpost.core.delivery.rate import Rate, parse_rate
from fieldpost.core.delivery.receipt import ReceiptMissing
from fieldpost.core.delivery.retry import RetryPolicy, parse, to_text
from fieldpost.core.delivery.routing import Directory
from fieldpost.core.errors import InvalidInput
from fieldpost.core.lists import LISTS_TYPE, Channel, NotificationList
from fieldpost.core.notification import LIST_KEY, Severity

log = structlog.get_logger()

_remove_targets = Statement(
    "delete from list_targets where list_name = :list_name and address {any:addresses}", lists={"addresses": "text"}
)
_secrets = Statement(
    "select list_name, address, secret from list_targets where list_name {any:names} and secret is not null",
    lists={"names": "text"},
    result={"list_name": Text, "address": Text, "secret": Text},
)
_labels = Statement(
    "select list_name, address, secret from list_targets where list_name {any:names} order by list_name, address",
    lists={"names": "text"},
    result={"list_name": Text, "address": Text, "secret": Text},
)
_set_secrets = Statement(
    """
    update list_targets set secret = u.secret
    from {rows} where list_targets.list_name = u.list_name and list_targets.address = u.address
    """,
    rows={"list_name": "text", "address": "text", "secret": "text"},
)

_mark_moved = Statement(
    """
    update list_targets set moved_to = u.moved_to
    from {rows} where list_targets.list_name = u.list_name and list_targets.address = u.address
        and coalesce(list_targets.moved_to, '') <> u.moved_to
    """,
    rows={"list_name": "text", "address": "text", "moved_to": "text"},
)
_moved = Statement(
    "select list_name, address, moved_to from list_targets where moved_to is not null order by list_name, address",
    result={"list_name": Text, "address": Text, "moved_to": Text},
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
    targets = _targets_of(conn)
    found = conn.execute(select(lists).order_by(lists.c.list_name)).mappings()
    return [_list(dict(row), targets.get(row["list_name"])) for row in found]


def names(conn: Connection, limit: int) -> list[str]:
    """The names of at most `limit` lists, in order."""
    return list(conn.execute(select(lists.c.list_name).order_by(lists.c.list_name).limit(limit)).scalars())


def get_list(conn: Connection, name: str) -> NotificationList | None:
    row = conn.execute(select(lists).where(lists.c.list_name == name)).mappings().first()
    if row is None:
        return None
    return _list(dict(row), _targets_of(conn, [name]).get(name))


def target_secrets(conn: Connection, names: Collection[str]) -> dict[str, dict[str, str]]:
    """The sealed secrets of the targets of these lists, by list and address."""
    found = _secrets.run(conn, names=list(names)) if names else []
    secrets: dict[str, dict[str, str]] = {}
    for row in found:
        secrets.setdefault(row.list_name, {})[row.address] = row.secret
    return secrets


def labels(conn: Connection, names: Collection[str]) -> dict[str, dict[str, str | None]]:
    """The targets of these lists by list and address, with their sealed secrets; None for a target without one."""
    found: dict[str, dict[str, str | None]] = {}
    for row in _labels.run(conn, names=list(names)) if names else ():
        found.setdefault(row.list_name, {})[row.address] = row.secret
    return found


def mark_moved(conn: Connection, moved: Sequence[tuple[str, str, str]]) -> None:
    """Keep the new addresses of targets that their provider has moved: list, target and new address."""
    _mark_moved.run(conn, sorted(moved))


def moved(conn: Connection) -> list[tuple[str, str, str]]:
    """The targets that their provider has moved, until their lists have others instead: list, target, new address."""
    return [(row.list_name, row.address, row.moved_to) for row in _moved.run(conn)]


def lists_after(conn: Connection, name: str, limit: int) -> Sequence[NotificationList]:
    """The next lists after this name with their secrets, for processing all of them in batches."""
    found = conn.execute(select(lists).where(lists.c.list_name > name).order_by(lists.c.list_name).limit(limit))
    batch = [dict(row) for row in found.mappings()]
    targets = _targets_of(conn, [str(row["list_name"]) for row in batch])
    return [_list(row, targets.get(str(row["list_name"]))) for row in batch]


def reseal_list(conn: Connection, wanted: NotificationList) -> bool:
    """Write the same secrets under another key, unless the list has changed; its version stays."""
    found = get_list(conn, wanted.name)
    if found is None or found.version != wanted.version:
        return False
    _set_secrets.run(conn, [(wanted.name, address, sealed) for address, sealed in sorted(wanted.secrets.items())])
    return True


def naming(conn: Connection, name: str) -> list[str]:
    """The lists of lists that name this list."""
    named = (
        select(lists.c.list_name)
        .join(list_targets, list_targets.c.list_name == lists.c.list_name)
        .where(lists.c.type == LISTS_TYPE, list_targets.c.address == name)
    )
    return list(conn.execute(named).scalars())


def add_list(conn: Connection, notification_list: NotificationList, now: datetime) -> None:
    _count_change(conn)
    conn.execute(
        insert(lists).values(
            list_name=notification_list.name,
            type=notification_list.type,
            created_at=now,
            updated_at=now,
            **_list_values(notification_list),
        )
    )
    _add_targets(conn, notification_list, notification_list.targets)


def change_list(conn: Connection, wanted: NotificationList, now: datetime) -> bool:
    """Write all fields except name and type, unless the list has changed since `wanted.version`."""
    _count_change(conn, is_routed=wanted.type == LISTS_TYPE)
    changed = (
        update(lists)
        .where(lists.c.list_name == wanted.name, lists.c.version == wanted.version)
        .values(updated_at=now, version=wanted.version + 1, **_list_values(wanted))
    )
    if conn.execute(changed).rowcount != 1:
        return False
    before = _targets_of(conn, [wanted.name]).get(wanted.name, {})
    gone = sorted(before.keys() - set(wanted.targets))
    if gone:
        _remove_targets.run(conn, list_name=wanted.name, addresses=gone)
    _add_targets(conn, wanted, [address for address in wanted.targets if address not in before])
    secrets = [(address, wanted.secrets.get(address)) for address in wanted.targets if address in before]
    other = [(wanted.name, address, sealed) for address, sealed in secrets if before[address] != sealed]
    if other:
        _set_secrets.run(conn, other)
    return True


def remove_list(conn: Connection, name: str) -> bool:
    """Remove a list; its notifications keep the targets fixed at their first attempt."""
    _count_change(conn)
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
            **_channel_policy(channel),
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
            **_channel_policy(channel),
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


def _count_change(conn: Connection, *, is_routed: bool = True) -> None:
    """Count a change of a list. `is_routed`: it changes the lists, or their types, that a route leads to."""
    catalogue.count_change(conn, catalogue.PATHS)
    if is_routed:
        catalogue.count_change(conn, catalogue.EVENTS)


def _list_values(notification_list: NotificationList) -> dict[str, object]:
    allowed = notification_list.allowed_sites
    return {
        "channel_name": notification_list.channel_name,
        "park_uncertain": notification_list.park_uncertain,
        "retry": notification_list.retry and to_text(notification_list.retry),
        "allowed_sites": null() if allowed is None else list(allowed),
        "severity": notification_list.severity and notification_list.severity.value,
        "rate": notification_list.rate and notification_list.rate.text,
    }


def _targets_of(conn: Connection, names: Collection[str] | None = None) -> dict[str, dict[str, str | None]]:
    """The targets of these lists, else of all, in order of their addresses, each with its sealed secret."""
    wanted = select(list_targets).order_by(list_targets.c.address)
    targets: dict[str, dict[str, str | None]] = {}
    for row in conn.execute(wanted if names is None else wanted.where(list_targets.c.list_name.in_(names))):
        targets.setdefault(row.list_name, {})[row.address] = row.secret
    return targets


def _add_targets(conn: Connection, wanted: NotificationList, addresses: Collection[str]) -> None:
    rows = [{"list_name": wanted.name, "address": a, "secret": wanted.secrets.get(a)} for a in addresses]
    if rows:
        conn.execute(insert(list_targets), rows)


def _list(row: Mapping[str, object], targets: Mapping[str, str | None] | None = None) -> NotificationList:
    allowed = row["allowed_sites"]
    return NotificationList(
        name=str(row["list_name"]),
        type=str(row["type"]),
        channel_name=None if row["channel_name"] is None else str(row["channel_name"]),
        targets=tuple(targets or ()),
        secrets={address: sealed for address, sealed in (targets or {}).items() if sealed is not None},
        park_uncertain=bool(row["park_uncertain"]),
        version=int(str(row["version"])),
        retry=_retry(row["retry"]),
        # A value edited by hand that is not a list must not allow every site.
        allowed_sites=None if allowed is None else tuple(map(str, allowed)) if isinstance(allowed, list) else (),
        severity=None if row["severity"] is None else Severity(str(row["severity"])),
        rate=_rate(row["rate"]),
    )


def _channel_policy(channel: Channel) -> dict[str, object]:
    return {
        "max_retries": channel.max_retries,
        "retry_delay_s": channel.retry_delay_s,
        "retry": channel.retry and to_text(channel.retry),
        "rate": channel.rate and channel.rate.text,
        "receipt_wait_s": channel.receipt_wait_s,
        "receipt_missing": channel.receipt_missing.value,
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
        rate=_rate(row["rate"]),
        receipt_wait_s=float(str(row["receipt_wait_s"])),
        receipt_missing=ReceiptMissing(str(row["receipt_missing"])),
    )


def _rate(text: object) -> Rate | None:
    """The stored rate; None for an invalid one, edited by hand."""
    try:
        return None if text is None else parse_rate(text)
    except InvalidInput as error:
        log.warning("rate.ignored", error=error.message)
        return None


def _retry(text: object) -> RetryPolicy | None:
    """The stored policy; None for an invalid one, edited by hand."""
    try:
        return None if text is None else parse(text)
    except InvalidInput as error:
        log.warning("retry.ignored", error=error.message)
        return None
