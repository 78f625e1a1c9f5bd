"""Claims for an order: rows of one pool, within the shares of its keys and beyond them."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.store.notifications import due
from fieldpost.central.store.notifications.claims import Claimed, claim_due, take_all
from fieldpost.core.delivery.lanes import RETRY_SHARE, Lane
from fieldpost.core.delivery.routing import SlotPool
from fieldpost.core.delivery.slots import (
    NO_HOST_LIMIT,
    HostShares,
    Share,
    SlotLimits,
    SlotUse,
    extra_keys,
    extra_limit,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A node's request for rows of one pool."""

    pool: SlotPool
    shares: Sequence[Share]
    free: int
    """At most this many rows in total."""
    after: Mapping[Lane, str]
    use: SlotUse
    limits: SlotLimits
    blocked: Collection[str] = ()
    hosts: HostShares = NO_HOST_LIMIT

    def extra_keys(self, keys: Counter[str]) -> list[str]:
        """The keys that may claim beyond their share, after these claims."""
        is_full = self.free <= keys.total()
        return [] if is_full else extra_keys(self.use, self.limits, keys, excluded=self.blocked)


def claim_order(
    conn: Connection, owner: str, order: Order, *, lease_s: float, now: datetime | None, mine: Collection[str] = ()
) -> dict[Lane, list[Claimed]]:
    """Claim within the shares, one after the other, then beyond its share for the only key that has more; one
    transaction."""
    taken: dict[Lane, list[Claimed]] = {lane: [] for lane in Lane}
    keys: Counter[str] = Counter()
    empty: set[Lane] = set()
    for share in order.shares:
        if min(share.limit, order.free - keys.total()) > 0 and share.lane not in empty:
            claimed = claim_share(conn, owner, order, share, keys, lease_s=lease_s, now=now, mine=mine)
            keys.update(one.notification.delivery_key for one in claimed)
            taken[share.lane] += claimed
            if not claimed and all(count < share.per_key for count in share.busy.values()):
                empty.add(share.lane)  # every key had a free slot: a second query would find nothing either
    for lane, claimed in claim_extra(conn, owner, order, keys, lease_s=lease_s, now=now, mine=mine):
        taken[lane] += claimed
    return taken


def claim_share(
    conn: Connection,
    owner: str,
    order: Order,
    share: Share,
    keys: Counter[str],
    *,
    lease_s: float,
    now: datetime | None,
    mine: Collection[str] = (),
) -> list[Claimed]:
    """Claim within one share; `keys` counts the rows taken for the order before. One statement on PostgreSQL, if none
    of the rows has targets already."""
    return claim_due(
        conn,
        owner,
        share.lane,
        limit=min(share.limit, order.free - keys.total()),
        per_key=share.per_key,
        busy=keys + Counter(share.busy),
        after=order.after[share.lane],
        lease_s=lease_s,
        now=now,
        mine=mine,
        prefix=order.pool.prefix,
    )


def claim_extra(
    conn: Connection,
    owner: str,
    order: Order,
    keys: Counter[str],
    *,
    lease_s: float,
    now: datetime | None,
    mine: Collection[str] = (),
) -> list[tuple[Lane, list[Claimed]]]:
    """Claim beyond its share for the only key that has more due rows."""
    candidates = order.extra_keys(keys)
    return list(_extra(conn, owner, order, keys, candidates, lease_s, now, mine)) if candidates else []


def _extra(
    conn: Connection,
    owner: str,
    order: Order,
    keys: Counter[str],
    candidates: Collection[str],
    lease_s: float,
    now: datetime | None,
    mine: Collection[str],
) -> Iterator[tuple[Lane, list[Claimed]]]:
    lanes = {share.lane for share in order.shares}
    waiting = due.waiting_keys(conn, candidates, lanes, mine=mine, now=now)
    limit = extra_limit(order.use, order.limits, keys.total(), order.free, waiting)
    for key in waiting:
        if (of_host := order.hosts.of(key)) is not None:
            limit = min(limit, of_host - keys[key])
    for lane, most in ((Lane.RETRY, limit // RETRY_SHARE), (Lane.FRESH, limit), (Lane.RETRY, limit)):
        if lane in lanes and (most := min(most, limit)) > 0:
            ids = due.find_of_key(conn, lane, next(iter(waiting)), limit=most, mine=mine, now=now)
            claimed = take_all(conn, owner, ids, lease_s, now)
            limit -= len(claimed)
            yield lane, claimed
