"""Rates of paths: claimed notifications beyond the rate wait for their turn, without using an attempt."""

from collections.abc import Sequence

from fieldpost.central.dispatch.attempt import RateWait
from fieldpost.central.dispatch.paths import Paths
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import rates
from fieldpost.central.store.notifications.claims import Claimed
from fieldpost.core.delivery.rate import Rate
from fieldpost.core.delivery.routing import DeliveryPath


async def take_rates(store: Store, claimed: Sequence[Claimed], paths: Paths) -> dict[str, RateWait]:
    """Take one delivery from its path's rate for each; the waits, by notification id, of those that get none."""
    by_key: dict[str, tuple[Rate, list[str]]] = {}
    for one in claimed:
        path = paths.get(one.notification.delivery_key)
        if isinstance(path, DeliveryPath) and path.rate is not None and path.hold_reason is None:
            _, ids = by_key.setdefault(path.delivery_key, (path.rate, []))
            ids.append(one.notification.notification_id)
    if not by_key:
        return {}
    wanted = {key: (rate, len(ids)) for key, (rate, ids) in by_key.items()}
    grants = await store.write(rates.take_many, wanted, now=store.now())
    return {
        notification_id: RateWait(grants[key].wait_until + number * rate.interval, grants[key].wait_until)
        for key, (rate, ids) in by_key.items()
        for number, notification_id in enumerate(ids[grants[key].count :])
    }
