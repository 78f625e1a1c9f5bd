"""Subscriptions as publishing sees them.

Publishing creates one notification for each subscription that matches, in one transaction. So that "active at the
commit" has a meaning, publishers hold a shared lock on the catalogue until they commit, and a change of a subscription
or topic holds it exclusively. The catalogue's version shows a publisher whether its compiled matcher is current. On
SQLite the single writer serialises both.
"""

from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import Connection, insert, select, text, update

from fieldpost.central.store.schema import catalogue
from fieldpost.central.store.schema.event_tables import subscriptions
from fieldpost.core.delivery.retry import parse, to_text
from fieldpost.core.events.filter import FilterEntry, SubscriptionFilter
from fieldpost.core.events.subscription import Subscription, SubscriptionState

_LOCK = 0x46_50_53_55
"""Key of the advisory lock on the catalogue."""


def lock_shared(conn: Connection) -> int:
    """Keep subscriptions and topics from changing until this transaction ends; returns the catalogue's version."""
    if conn.dialect.name == "postgresql":
        conn.execute(text(f"select pg_advisory_xact_lock_shared({_LOCK})"))
    return version(conn)


def version(conn: Connection) -> int:
    """The number of changes of subscriptions and topics so far."""
    return catalogue.version_of(conn, catalogue.EVENTS)


def keep_publishers_out(conn: Connection) -> None:
    """Wait for running publishers, and keep others from starting until this transaction ends."""
    if conn.dialect.name == "postgresql":
        conn.execute(text(f"select pg_advisory_xact_lock({_LOCK})"))


def lock_for_change(conn: Connection) -> None:
    """Wait for running publishers and count the change. Every change of a subscription or topic begins with this."""
    keep_publishers_out(conn)
    catalogue.count_change(conn, catalogue.EVENTS)
    catalogue.count_change(conn, catalogue.PATHS)


def active(conn: Connection) -> list[Subscription]:
    """The subscriptions that get notifications."""
    wanted = [state.value for state in SubscriptionState if state.gets_notifications]
    found = conn.execute(select(subscriptions).where(subscriptions.c.state.in_(wanted))).mappings()
    return [_subscription(dict(row)) for row in found]


def these(conn: Connection, ids: Collection[str]) -> dict[str, Subscription]:
    """Those of these subscriptions that exist, by id."""
    found = (
        conn.execute(select(subscriptions).where(subscriptions.c.subscription_id.in_(ids))).mappings() if ids else ()
    )
    return {one.subscription_id: one for one in (_subscription(dict(row)) for row in found)}


def get(conn: Connection, subscription_id: str) -> Subscription | None:
    row = (
        conn.execute(select(subscriptions).where(subscriptions.c.subscription_id == subscription_id)).mappings().first()
    )
    return _subscription(dict(row)) if row else None


def add(conn: Connection, subscription: Subscription, now: datetime) -> None:
    lock_for_change(conn)
    conn.execute(
        insert(subscriptions).values(
            subscription_id=subscription.subscription_id, created_at=now, updated_at=now, **_values(subscription)
        )
    )


def change(conn: Connection, wanted: Subscription, now: datetime) -> bool:
    """Write all but the id, if the subscription is still at `wanted.version`."""
    lock_for_change(conn)
    changed = (
        update(subscriptions)
        .where(subscriptions.c.subscription_id == wanted.subscription_id, subscriptions.c.version == wanted.version)
        .values(updated_at=now, **_values(wanted) | {"version": wanted.version + 1})
    )
    return conn.execute(changed).rowcount == 1


def _mapping(value: object) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}


def _values(subscription: Subscription) -> dict[str, object]:
    return {
        "name": subscription.name,
        "owner": subscription.owner,
        "filter": [_plain(entry) for entry in subscription.filter],
        "state": subscription.state.value,
        "settings": dict(subscription.settings),
        "secrets": dict(subscription.secrets),
        "retry": subscription.retry and to_text(subscription.retry),
        "version": subscription.version,
    }


def _plain(entry: FilterEntry) -> dict[str, object]:
    names = ("topic", "action", "resource", "attributes", "rule")
    return {name: value for name in names if (value := getattr(entry, name)) is not None}


def _subscription(row: Mapping[str, object]) -> Subscription:
    stored = row["filter"]
    assert isinstance(stored, list), "the column holds a list of entries"
    entries: SubscriptionFilter = tuple(FilterEntry(**entry) for entry in stored)
    return Subscription(
        subscription_id=str(row["subscription_id"]),
        name=str(row["name"]),
        owner=str(row["owner"]),
        filter=entries,
        state=SubscriptionState(str(row["state"])),
        settings=_mapping(row["settings"]),
        secrets={name: str(sealed) for name, sealed in _mapping(row["secrets"]).items()},
        retry=None if row["retry"] is None else parse(row["retry"]),
        version=int(str(row["version"])),
    )
