"""Queries of subscriptions: state, breaker and held notifications, failing ones first."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import present
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import subscriptions as rows
from fieldpost.central.store.notifications import breakers
from fieldpost.central.watch.cursor import LIMIT_DEFAULT, check_limit, invalid_cursor
from fieldpost.core.delivery.breaker import Breaker, BreakerState
from fieldpost.core.delivery.holds import HoldKind, held_by
from fieldpost.core.events.subscription import Subscription, SubscriptionState, subscription_key
from fieldpost.core.ids import is_id

HELD_MAX = 10_000
"""Held notifications are counted up to this number."""
UNHEALTHY_MAX = 500
"""How many failing subscriptions are listed."""
_RESTING = (SubscriptionState.DISABLED, SubscriptionState.UNVERIFIED)


@dataclass(frozen=True, slots=True)
class SubscriptionHealth:
    """One subscription with its breaker and held notifications."""

    subscription: Subscription
    breaker: Breaker
    held: int
    """Notifications held by its breaker or a pause; HELD_MAX means at least that number."""
    is_tried: bool
    """Whether a delivery to its receiver has been attempted."""

    @property
    def health(self) -> str:
        """blocked, monitored, healthy or untried; the state itself if it is not active."""
        if self.subscription.state is not SubscriptionState.ACTIVE:
            return self.subscription.state.value
        return self.breaker.health if self.is_tried else "untried"

    @property
    def is_unhealthy(self) -> bool:
        """Whether its receiver fails, or no notifications are created for it any more."""
        is_failing = self.breaker.state is not BreakerState.CLOSED or bool(self.breaker.failures)
        return is_failing or self.subscription.state in _RESTING


@dataclass(frozen=True, slots=True)
class SubscriptionPage:
    """Subscriptions by name."""

    subscriptions: Sequence[SubscriptionHealth]
    next_cursor: str | None
    as_of: datetime


class SubscriptionReader:
    """Reads subscriptions."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def page(
        self,
        *,
        owner: str | None = None,
        states: Collection[SubscriptionState] = (),
        limit: int = LIMIT_DEFAULT,
        cursor: str | None = None,
        are_problems_first: bool = False,
    ) -> SubscriptionPage:
        """A page by name; without states all but the removed ones. Raises InvalidInput for a bad limit or cursor.

        The first page may begin with up to `limit` unhealthy ones, wherever their names are.
        """
        check_limit(limit)
        if cursor is not None and not is_id(cursor):
            raise invalid_cursor()
        problems = limit if are_problems_first and cursor is None else 0
        return await self._store.read(_page, owner, states, limit, cursor, problems, now=self._store.now())

    async def one(self, subscription_id: str, owner: str | None = None) -> tuple[SubscriptionHealth, datetime]:
        """One subscription and the time of the query. Raises NotFound, also for one of another owner."""
        found = None
        if is_id(subscription_id):
            found = await self._store.read(_one, subscription_id, now=self._store.now())
        if found is not None and owner not in (None, found[0].subscription.owner):
            found = None
        return present(found, "subscription", subscription_id)

    async def unhealthy(self, owner: str | None = None) -> SubscriptionPage:
        """All subscriptions whose receiver fails, blocked ones first."""
        return await self._store.read(_unhealthy, owner, now=self._store.now())


def _page(
    conn: Connection,
    owner: str | None,
    states: Collection[SubscriptionState],
    limit: int,
    cursor: str | None,
    problems_max: int,
    *,
    now: datetime | None,
) -> SubscriptionPage:
    last = rows.get(conn, cursor) if cursor else None
    # Another owner's subscription is as unknown as one that does not exist.
    if cursor and (last is None or owner not in (None, last.owner)):
        raise invalid_cursor()
    after = (last.name, last.subscription_id) if last else None
    found = rows.find(conn, owner=owner, states=states, after=after, limit=limit + 1)
    shown = found[:limit]
    more = shown[-1].subscription_id if len(found) > limit else None
    if problems_max:
        problems = _problems(conn, owner, states, problems_max)
        ids = {one.subscription_id for one in problems}
        shown = problems + [one for one in shown if one.subscription_id not in ids]
    return SubscriptionPage(_with_health(conn, shown), more, database_time(conn, now))


def _problems(
    conn: Connection, owner: str | None, states: Collection[SubscriptionState], limit: int
) -> list[Subscription]:
    """Unhealthy subscriptions in these states, or in any but removed: blocked ones first, then those that fail, then
    those that get nothing at present."""
    found = [one for one in rows.failing(conn, owner, limit) if not states or one.state in states]
    resting = [state for state in _RESTING if not states or state in states]
    seen = {one.subscription_id for one in found}
    if resting:
        others = rows.find(conn, owner=owner, states=resting, limit=limit)
        found += [one for one in others if one.subscription_id not in seen]
    return found[:limit]


def _one(conn: Connection, subscription_id: str, *, now: datetime | None) -> tuple[SubscriptionHealth, datetime] | None:
    found = rows.get(conn, subscription_id)
    return (_with_health(conn, [found])[0], database_time(conn, now)) if found else None


def _unhealthy(conn: Connection, owner: str | None, *, now: datetime | None) -> SubscriptionPage:
    shown = _with_health(conn, rows.failing(conn, owner, UNHEALTHY_MAX))
    shown.sort(key=lambda one: (one.breaker.state is BreakerState.CLOSED, -one.held, one.subscription.name))
    return SubscriptionPage(shown, None, database_time(conn, now))


def _with_health(conn: Connection, found: Sequence[Subscription]) -> list[SubscriptionHealth]:
    keys = {one.subscription_id: subscription_key(one.subscription_id) for one in found}
    known = breakers.load(conn, list(keys.values())) if keys else {}
    holds = {key: (key, held_by(HoldKind.PAUSE, key)) for key in keys.values()}
    held = breakers.held_counts_of(conn, holds, HELD_MAX)
    return [
        SubscriptionHealth(one, known.get(key, Breaker(key)), held[key], key in known)
        for one in found
        for key in [keys[one.subscription_id]]
    ]
