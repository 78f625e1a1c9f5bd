"""Subscriptions as publishing sees them.

Publishing creates one notification for each subscription that matches, in one transaction. So that "active at the
commit" has a meaning, publishers hold a shared lock on the catalogue until they commit, and a change of a subscription
or topic holds it exclusively. The catalogue's version shows a publisher whether its compiled matcher is current. On
SQLite the single writer serialises both.
"""

from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import Connection, func, insert, literal, select, text, tuple_, update

from fieldpost.central.store.engine.column_types import Id
from fieldpost.central.store.schema import catalogue
from fieldpost.central.store.schema.event_tables import subscriptions
from fieldpost.core.delivery.retry import parse, to_text
from fieldpost.core.events.filter import FilterEntry, SubscriptionFilter
from fieldpost.core.events.subscription import SUBSCRIPTION_KEY, Subscription, SubscriptionState
from fieldpost.core.times import to_text as moment_to_text

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


def abonnementen(conn: Connection, owner: str) -> list[Subscription]:
    """The owner's abonnementen, oldest first, without removed ones."""
    c = subscriptions.c
    query = select(subscriptions).where(c.owner == owner, c.abonnement_id.is_not(None))
    query = query.where(c.state != SubscriptionState.REMOVED.value).order_by(c.subscription_id)
    return [_subscription(dict(row)) for row in conn.execute(query).mappings()]


def by_abonnement(conn: Connection, abonnement_id: str) -> Subscription | None:
    """The subscription with this abonnement id, unless it is removed."""
    c = subscriptions.c
    query = select(subscriptions).where(c.abonnement_id == abonnement_id)
    row = conn.execute(query.where(c.state != SubscriptionState.REMOVED.value)).mappings().first()
    return _subscription(dict(row)) if row else None


def expiring(conn: Connection, before: datetime) -> list[Subscription]:
    """Subscriptions that get notifications and whose token for the receiver expires before this time, first to last."""
    wanted = [state.value for state in SubscriptionState if state.gets_notifications]
    expiry = text("settings->>'auth_expires_at' < :before").bindparams(before=moment_to_text(before))
    query = select(subscriptions).where(subscriptions.c.state.in_(wanted), expiry)
    found = [_subscription(dict(row)) for row in conn.execute(query).mappings()]
    return sorted(found, key=lambda one: str(one.settings["auth_expires_at"]))


def find(
    conn: Connection,
    *,
    owner: str | None = None,
    states: Collection[SubscriptionState] = (),
    after: tuple[str, str] | None = None,
    limit: int,
) -> list[Subscription]:
    """Subscriptions in order of name and id, behind `after`; without states all but the removed ones."""
    c = subscriptions.c
    query = select(subscriptions).order_by(c.name, c.subscription_id).limit(limit)
    wanted = states or [state for state in SubscriptionState if state is not SubscriptionState.REMOVED]
    query = query.where(c.state.in_([state.value for state in wanted]))
    if owner is not None:
        query = query.where(c.owner == owner)
    if after is not None:
        query = query.where(tuple_(c.name, c.subscription_id) > tuple_(literal(after[0]), literal(after[1], Id)))
    return [_subscription(dict(row)) for row in conn.execute(query).mappings()]


def failing(conn: Connection, owner: str | None, limit: int) -> list[Subscription]:
    """The subscriptions whose breakers count failures or are blocked: blocked ones first, then by name; of this owner,
    if one is given, and without removed ones."""
    id_type = "uuid" if conn.dialect.name == "postgresql" else "text"
    query = f"""
        select s.subscription_id from breakers b join subscriptions s on s.subscription_id
            = case when b.key like '{SUBSCRIPTION_KEY}%' then cast(substr(b.key, :start) as {id_type}) end
        where (b.state <> 'closed' or b.failures > 0) and s.state <> '{SubscriptionState.REMOVED.value}'
            {"and s.owner = :owner" if owner is not None else ""}
        order by b.state desc, s.name, b.key limit :limit
    """
    given = {"start": len(SUBSCRIPTION_KEY) + 1, "limit": limit} | ({"owner": owner} if owner is not None else {})
    ids = [str(one) for one in conn.execute(text(query), given).scalars()]
    found = these(conn, ids)
    return [found[one] for one in ids]


def named(conn: Connection, owner: str, name: str) -> Subscription | None:
    """The owner's subscription of this name, unless it is removed."""
    c = subscriptions.c
    query = select(subscriptions).where(c.owner == owner, c.name == name, c.state != SubscriptionState.REMOVED.value)
    row = conn.execute(query).mappings().first()
    return _subscription(dict(row)) if row else None


def count_of(conn: Connection, owner: str) -> int:
    """The number of the owner's subscriptions, without removed ones; it cannot change until this transaction ends."""
    keep_publishers_out(conn)
    c = subscriptions.c
    query = select(func.count()).where(c.owner == owner, c.state != SubscriptionState.REMOVED.value)
    return int(conn.execute(query.select_from(subscriptions)).scalar_one())


def after(conn: Connection, subscription_id: str, limit: int) -> list[Subscription]:
    """The next subscriptions after this id, removed ones too, for processing all of them in batches."""
    c = subscriptions.c
    query = select(subscriptions).where(c.subscription_id > subscription_id).order_by(c.subscription_id).limit(limit)
    return [_subscription(dict(row)) for row in conn.execute(query).mappings()]


def reseal(conn: Connection, subscription: Subscription) -> bool:
    """Write the same secrets under another key, unless the subscription has changed; its version stays."""
    catalogue.count_change(conn, catalogue.PATHS)
    c = subscriptions.c
    of_this = (c.subscription_id == subscription.subscription_id, c.version == subscription.version)
    return conn.execute(update(subscriptions).where(*of_this).values(secrets=dict(subscription.secrets))).rowcount == 1


def draining(conn: Connection) -> list[str]:
    """The ids of subscriptions that may have notifications left to drain."""
    query = select(subscriptions.c.subscription_id).where(text("is_draining"))
    return list(conn.execute(query.order_by(subscriptions.c.subscription_id)).scalars())


def mark_drained(conn: Connection, subscription_id: str) -> None:
    """No notification of a disabled or removed subscription is left."""
    of_this = subscriptions.c.subscription_id == subscription_id
    conn.execute(update(subscriptions).where(of_this).values(is_draining=False))


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
        "filter": filter_to_rows(subscription.filter),
        "state": subscription.state.value,
        "state_reason": subscription.state_reason,
        "state_by": subscription.state_by,
        "state_at": subscription.state_at,
        "is_restricted": subscription.is_restricted,
        "is_verified": subscription.is_verified,
        "is_draining": subscription.is_draining,
        "settings": dict(subscription.settings),
        "secrets": dict(subscription.secrets),
        "retry": subscription.retry and to_text(subscription.retry),
        "abonnement_id": subscription.abonnement_id,
        "version": subscription.version,
    }


def filter_to_rows(entries: SubscriptionFilter) -> list[dict[str, object]]:
    """A filter as its column holds it."""
    names = ("topic", "action", "resource", "attributes", "rule")
    return [{name: value for name in names if (value := getattr(one, name)) is not None} for one in entries]


def filter_from_rows(stored: object) -> SubscriptionFilter:
    assert isinstance(stored, list), "the column holds a list of entries"
    return tuple(FilterEntry(**entry) for entry in stored)


def _subscription(row: Mapping[str, object]) -> Subscription:
    state_at = row["state_at"]
    return Subscription(
        subscription_id=str(row["subscription_id"]),
        name=str(row["name"]),
        owner=str(row["owner"]),
        filter=filter_from_rows(row["filter"]),
        state=SubscriptionState(str(row["state"])),
        state_reason=None if row["state_reason"] is None else str(row["state_reason"]),
        state_by=None if row["state_by"] is None else str(row["state_by"]),
        state_at=state_at if isinstance(state_at, datetime) else None,
        is_restricted=bool(row["is_restricted"]),
        is_verified=bool(row["is_verified"]),
        is_draining=bool(row["is_draining"]),
        settings=_mapping(row["settings"]),
        secrets={name: str(sealed) for name, sealed in _mapping(row["secrets"]).items()},
        retry=None if row["retry"] is None else parse(row["retry"]),
        abonnement_id=None if row["abonnement_id"] is None else str(row["abonnement_id"]),
        version=int(str(row["version"])),
    )
