"""Queues behind the rates of lists and channels.

Theory of operation. A list with a rate, or on a channel with one, has two queues: rows held by `rate_first:<key>`, the
critical ones, and by `rate:<key>`, both in order of their due time. `take_turns` takes what the rates allow now and
claims as many rows, the critical ones first. The states of the rates are locked meanwhile, so that all nodes
together keep them. Nothing is scheduled ahead: the turn of a row follows from the rows ahead of it (`forecast`). A list
without a queue has no row here; its claims ask the rates directly (`take_jointly`).
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import BigInteger, Connection, Text

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.statement import Statement, database_time
from fieldpost.central.store.notifications import rates
from fieldpost.central.store.notifications.claims import Claimed, take_all
from fieldpost.central.store.schema.notification_tables import IS_CLAIMABLE
from fieldpost.core.delivery.holds import HoldKind, held_by, kind_of
from fieldpost.core.delivery.rate import Rate, spare, spend, turn
from fieldpost.core.delivery.turn_forecast import RowsAhead, forecast_turn
from fieldpost.core.search.page_key import PageKey

RATE_USED_UP = "the rate limit is used up"
COUNT_MAX = 100_000
"""Up to how many rows ahead are counted for a forecast."""

_END: PageKey = (datetime(9999, 1, 1, tzinfo=UTC), "ffffffff-ffff-ffff-ffff-ffffffffffff")
"""The place behind a whole queue."""

PathRates = tuple[tuple[str, Rate], ...]

# The severity decides the queue. Lane by lane, as the index of claimable rows has them; due times stay.
_TO_ENQUEUE = f"""
    select notification_id from notifications
    where {IS_CLAIMABLE} and status = :status and delivery_key = :key and due_at <= (select at from moment)
        and (lease_until is null or lease_until <= (select at from moment)) and orphan_count = 0
    order by due_at limit :limit
"""
_ENQUEUE = """
    with moment as (select {now} as at)
    update notifications set held_reason = :reason, version = version + 1,
        held_by = case when severity = 'critical' then :first else :queue end
    where notification_id
"""
_enqueue = Statement(
    f"{_ENQUEUE} = any(array({_TO_ENQUEUE} {{locked}})) returning notification_id",
    sqlite=f"{_ENQUEUE} in ({_TO_ENQUEUE}) returning notification_id",
    result={"notification_id": Id},
)
_head = Statement(
    """
    select notification_id, delivery_key, due_at from notifications
    where held_by = :held_by and not is_timed and (lease_until is null or lease_until <= {now})
    order by due_at, notification_id limit :limit {locked}
    """,
    result={"notification_id": Id, "delivery_key": Text, "due_at": Moment},
)
# Waiting for a rate does not age a row: its cycle starts again.
_begin = Statement(
    """
    update notifications set held_by = null, held_reason = null, cycle_started_at = {now}, version = version + 1
    where notification_id {any:ids}
    """,
    lists={"ids": "id"},
)
_ahead = Statement(
    """
    select held_by, (
        select count(*) from (
            select 1 from notifications where notifications.held_by = u.held_by and not is_timed
                and (due_at, notification_id) < (u.before, u.before_id) limit :count_max
        ) as ahead
    ) as size, (
        select min(due_at) from notifications where notifications.held_by = u.held_by and not is_timed
    ) as head, (
        select max(due_at) from notifications where notifications.held_by = u.held_by and not is_timed
            and due_at <= u.before
    ) as tail from {rows}
    """,
    rows={"held_by": "text", "before": "moment", "before_id": "id"},
    result={"held_by": Text, "size": BigInteger, "head": Moment, "tail": Moment},
)


@dataclass(frozen=True, slots=True)
class Queue:
    """A delivery key with rows that wait for their turn, and how many of them may start at once."""

    delivery_key: str
    rates: PathRates
    slots: int


@dataclass(frozen=True, slots=True)
class Turns:
    """Claimed rows whose turn has come, and when the next turn comes; None if no queue has more."""

    claimed: Sequence[Claimed]
    next_at: datetime | None
    empty: Collection[str]
    """Delivery keys without a queue now."""


def queue_of(delivery_key: str, is_critical: bool) -> str:
    """The `held_by` of a row in the queue of a delivery key."""
    return held_by(HoldKind.RATE_FIRST if is_critical else HoldKind.RATE, delivery_key)


def enqueue(conn: Connection, keys: Collection[str], limit: int, *, now: datetime | None) -> int:
    """Move claimable rows of these delivery keys to their queues, at most `limit` of each; how many."""
    return sum(
        len(
            _enqueue.run(
                conn,
                key=key,
                first=queue_of(key, True),
                queue=queue_of(key, False),
                reason=RATE_USED_UP,
                status=status,
                limit=limit,
                now=now,
            )
        )
        for key in sorted(keys)
        for status in ("pending", "retrying")
    )


def take_jointly(
    conn: Connection, wanted: Mapping[str, tuple[PathRates, int]], *, now: datetime | None
) -> dict[str, int]:
    """Take as many of the wanted deliveries of each delivery key as all its rates allow now; how many."""
    at = database_time(conn, now)
    states = rates.lock(conn, {key for path_rates, _ in wanted.values() for key, _ in path_rates}, at)
    granted = {}
    for delivery_key, (path_rates, count) in wanted.items():
        granted[delivery_key] = min([count, *(spare(rate, states[key], at) for key, rate in path_rates)])
        _spend(states, path_rates, granted[delivery_key], at)
    rates.save(conn, states)
    return granted


def take_turns(
    conn: Connection, owner: str, queues: Sequence[Queue], free: int, *, lease_s: float, now: datetime | None
) -> Turns:
    """Claim the rows whose turn has come, critical ones first, then those that are due longest; at most `free`."""
    at = database_time(conn, now)
    states = rates.lock(conn, {key for queue in queues for key, _ in queue.rates}, at)
    waiting: list[tuple[bool, datetime, str, Queue]] = []
    for queue in queues:
        # One row more than may start shows whether the queue goes on.
        most = min([queue.slots, free, *(spare(rate, states[key], at) for key, rate in queue.rates)])
        rows: list[tuple[bool, datetime, str, Queue]] = []
        for kind in (HoldKind.RATE_FIRST, HoldKind.RATE):
            if len(rows) <= most:
                found = _head.run(conn, held_by=held_by(kind, queue.delivery_key), limit=most + 1 - len(rows), now=now)
                rows += [(kind is HoldKind.RATE, row.due_at, row.notification_id, queue) for row in found]
        waiting += rows
    ids: list[str] = []
    left: list[Queue] = []
    used: Counter[str] = Counter()
    for _, _, notification_id, queue in sorted(waiting, key=lambda one: one[:3]):
        is_allowed = all(spare(rate, states[key], at) for key, rate in queue.rates)
        if is_allowed and len(ids) < free and used[queue.delivery_key] < queue.slots:
            _spend(states, queue.rates, 1, at)
            used[queue.delivery_key] += 1
            ids.append(notification_id)
        else:
            left.append(queue)
    rates.save(conn, states)
    if ids:
        _begin.run(conn, ids=ids, now=now)
    # A row without a free slot has no time of its own: the end of an attempt wakes the node.
    turns = [max(turn(rate, states[key], 0, at) for key, rate in queue.rates) for queue in left if queue.rates]
    empty = {queue.delivery_key for queue in queues} - {queue.delivery_key for queue in left}
    return Turns(take_all(conn, owner, ids, lease_s, now), min(turns, default=None), empty)


def forecast(
    conn: Connection, held: str, place: PageKey, queues: Mapping[str, PathRates], at: datetime
) -> datetime | None:
    """When the turn of the row at this place of a queue comes, if its rates are used fully until then.

    `queues` are the rates of its delivery key and of those that share the rate of its channel.
    """
    own = held.partition(":")[2]
    if not queues.get(own):
        return None
    states = rates.read(conn, {key for path_rates in queues.values() for key, _ in path_rates})
    is_first = held == queue_of(own, True)
    places = [(queue_of(key, True), *(place if is_first else _END)) for key in queues]
    places += [] if is_first else [(queue_of(key, False), *place) for key in queues]
    ahead = [
        RowsAhead(
            row.held_by.partition(":")[2], kind_of(row.held_by) is HoldKind.RATE_FIRST, row.head, row.tail, row.size
        )
        for row in _ahead.run(conn, places, count_max=COUNT_MAX)
        if row.size
    ]
    found = {key: (rate, states.get(key)) for path_rates in queues.values() for key, rate in path_rates}
    channel = next((found[key] for key, _ in queues[own] if key != own), None)
    return forecast_turn(own, ahead, found, channel, at)


def _spend(states: dict[str, datetime], path_rates: PathRates, count: int, at: datetime) -> None:
    for key, rate in path_rates:
        states[key] = spend(rate, states[key], count, at)
