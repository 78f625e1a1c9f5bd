"""Rates of paths: claimed notifications beyond the rate wait for their turn, without using an attempt."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fieldpost.central.dispatch.attempt import RateWait
from fieldpost.central.dispatch.paths import Paths
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import rates, turns
from fieldpost.central.store.notifications.claims import Claimed
from fieldpost.central.store.notifications.turns import PathRates
from fieldpost.core.delivery.rate import Rate
from fieldpost.core.delivery.routing import DeliveryPath
from fieldpost.core.notification import Severity


@dataclass(frozen=True, slots=True)
class RateWaits:
    """The claimed notifications that get no delivery now."""

    timed: dict[str, RateWait] = field(default_factory=dict)
    """The turns of notifications to subscriptions, by id."""
    queued: set[str] = field(default_factory=set)
    """The ids of notifications to lists that join the queue of their list."""


NO_WAITS = RateWaits()


async def take_rates(store: Store, claimed: Sequence[Claimed], paths: Paths) -> RateWaits:
    """Take one delivery from the rates of its path for each claimed notification."""
    timed: dict[str, tuple[Rate, list[str]]] = {}
    of_lists: dict[str, tuple[PathRates, list[Claimed]]] = {}
    for one in claimed:
        path = paths.get(one.notification.delivery_key)
        if not isinstance(path, DeliveryPath):
            continue
        if path.rates:
            of_lists.setdefault(path.delivery_key, (path.rates, []))[1].append(one)
        elif path.rate is not None and path.hold_reason is None:
            timed.setdefault(path.delivery_key, (path.rate, []))[1].append(one.notification.notification_id)
    if not timed and not of_lists:
        return NO_WAITS
    waits = await _timed(store, timed)
    # Until the results of these are written, no more is claimed.
    paths.snapshot.used_up |= {key for key, (_, ids) in timed.items() if any(one in waits for one in ids)}
    return RateWaits(waits, await _queued(store, of_lists, paths.snapshot.queued))


async def _timed(store: Store, by_key: dict[str, tuple[Rate, list[str]]]) -> dict[str, RateWait]:
    if not by_key:
        return {}
    wanted = {key: (rate, len(ids)) for key, (rate, ids) in by_key.items()}
    grants = await store.write(rates.take_many, wanted, now=store.now())
    return {
        notification_id: RateWait(grants[key].wait_until + number * rate.interval, grants[key].wait_until)
        for key, (rate, ids) in by_key.items()
        for number, notification_id in enumerate(ids[grants[key].count :])
    }


async def _queued(store: Store, by_key: dict[str, tuple[PathRates, list[Claimed]]], in_use: set[str]) -> set[str]:
    """Those beyond the rates; where there is a queue, all join it."""
    wanted = {key: (path_rates, len(found)) for key, (path_rates, found) in by_key.items() if key not in in_use}
    granted = await store.write(turns.take_jointly, wanted, now=store.now()) if wanted else {}
    return {
        one.notification.notification_id
        for key, (_, found) in by_key.items()
        for one in sorted(found, key=_rank)[granted.get(key, 0) :]
    }


def _rank(one: Claimed) -> bool:
    return one.notification.severity is not Severity.CRITICAL
