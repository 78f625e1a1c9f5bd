"""Claims of a sweep: what to ask the store for, and in how many transactions.

Most sweeps find rows of the fresh lane only. One statement claims these, and PostgreSQL commits it without BEGIN and
COMMIT; a transaction of several statements is needed for retries, and for a key that claims beyond its share.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from fieldpost.central.dispatch.host_limits import HostLimits
from fieldpost.central.dispatch.node_slots import NodeSlots
from fieldpost.central.dispatch.paths import Paths
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import claim_orders
from fieldpost.central.store.notifications.claim_orders import Order
from fieldpost.central.store.notifications.claims import Claimed
from fieldpost.core.delivery.lanes import Lane
from fieldpost.core.delivery.routing import SlotPool
from fieldpost.core.delivery.slots import NO_HOST_LIMIT, SlotUse, plan_shares


def plan(
    pool: SlotPool,
    lanes: Sequence[Lane],
    use: SlotUse,
    free: int,
    after: Mapping[Lane, str],
    paths: Paths,
    slots: NodeSlots,
    hosts: HostLimits,
) -> Order:
    """An order for at most `free` rows in these lanes of the pool. The walk over the keys begins behind `after`."""
    blocked = {key for key in paths.blocked() if key.startswith(pool.prefix)}
    share, of_hosts = slots.share(pool, use), NO_HOST_LIMIT
    if pool is SlotPool.SUBSCRIPTIONS:
        blocked |= slots.stalled(use)
        of_hosts = hosts.plan(share.per_key, blocked)
        blocked |= of_hosts.blocked
        for key, burst in paths.bursts().items():  # more would be claimed only to be held
            of_hosts.most[key] = min(burst, of_hosts.most.get(key, burst))
    shares = plan_shares(use, share, free, blocked=blocked, single=paths.single(), most=of_hosts.most)
    return Order(
        pool=pool,
        shares=[one for one in shares if one.lane in lanes],
        free=free,
        after=dict(after),
        use=use,
        limits=slots.limits[pool],
        blocked=blocked,
        hosts=of_hosts,
    )


async def claim(
    store: Store, node_id: str, order: Order, *, lease_s: float, mine: Collection[str]
) -> Mapping[Lane, list[Claimed]]:
    """Claim rows for the order, by lane."""
    if len(order.shares) > 1:
        return await store.write(claim_orders.claim_order, node_id, order, lease_s=lease_s, now=store.now(), mine=mine)
    taken: dict[Lane, list[Claimed]] = {lane: [] for lane in Lane}
    keys: Counter[str] = Counter()
    for share in order.shares:
        taken[share.lane] = await store.write_one(
            claim_orders.claim_share, node_id, order, share, keys, lease_s=lease_s, now=store.now(), mine=mine
        )
        keys.update([one.notification.delivery_key for one in taken[share.lane]])
    if order.extra_keys(keys):
        for lane, claimed in await store.write(
            claim_orders.claim_extra, node_id, order, keys, lease_s=lease_s, now=store.now(), mine=mine
        ):
            taken[lane] += claimed
    return taken
