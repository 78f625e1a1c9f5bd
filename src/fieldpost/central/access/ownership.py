"""Ownership of subscriptions: a subscriber reaches the delivery keys of its owner, and no others."""

from sqlalchemy import Connection

from fieldpost.central.store.events import subscriptions
from fieldpost.core.actor import Actor
from fieldpost.core.bulk import BulkAction
from fieldpost.core.errors import Denied
from fieldpost.core.events.subscription import SUBSCRIPTION_KEY
from fieldpost.core.ids import is_id


def is_reachable(conn: Connection, delivery_key: str, owner: str | None) -> bool:
    """Whether an actor who is limited to this owner may see and change what belongs to the key; None for no limit."""
    if owner is None:
        return True
    if not delivery_key.startswith(SUBSCRIPTION_KEY):
        return False
    return _is_owned(conn, delivery_key.removeprefix(SUBSCRIPTION_KEY), owner)


def is_own_recovery(conn: Connection, action: BulkAction, owner: str | None) -> bool:
    """Whether the actor may see the bulk action: with a limit, only a recovery of a subscription of that owner."""
    return owner is None or (action.recovers is not None and _is_owned(conn, action.recovers, owner))


def own_name(actor: Actor, given: str | None) -> str | None:
    """The owner in a request: the subscriber's own, which is also the default. Denied for another one."""
    own = actor.owner_limit
    if own is None:
        return given
    if given not in (None, own):
        raise Denied("access.own", f"a subscriber reaches only the subscriptions of its own owner, {own!r}")
    return own


def _is_owned(conn: Connection, subscription_id: str, owner: str) -> bool:
    found = subscriptions.get(conn, subscription_id) if is_id(subscription_id) else None
    return found is not None and found.owner == owner
