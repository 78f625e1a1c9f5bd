"""`table`: reads and writes beside the delivery path, on a table with a year of data (`bench/grown.py`).

All KPIs of all 200 sites; the console's counts; the first page of the list and one from the middle; a page for each
filter, for a rare and a common word of the subject, for one event and one subscription; a page of events; a claim of
100 rows; the purge of a tenth of the table in batches,
with targets, attempts and tombstones. 1,000,000 and 5,000,000 rows, or --rows; 200,000 with --quick. Reference: the
same by hand on one plain connection, with the best index for each query. Figures are calls per second, higher is
better; the notes give the median and the minimum in milliseconds. The store is opened as a node opens it, and nothing
else uses it. On PostgreSQL the table was vacuumed after it was built.
"""

import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

from bench.grown import RETENTION_DAYS, GrownStore, grown
from bench.grown_beside import event_id, subscription_id
from bench.harness import Figure, Report
from bench.stores import Stores
from bench.table_by_hand import Hand, HandPostgres, HandSqlite
from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.store.engine.purging import BEGINNING, PurgedBatch, PurgeRange
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.figures import kpis
from fieldpost.central.store.notifications import claim_orders, retention
from fieldpost.central.store.notifications.claim_orders import Order
from fieldpost.central.upkeep.options import UpkeepOptions
from fieldpost.central.upkeep.purge import next_limit
from fieldpost.central.watch.cursor import to_cursor
from fieldpost.central.watch.events.events import EventReader
from fieldpost.central.watch.notifications import NotificationReader
from fieldpost.clock import SystemClock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.delivery.lanes import Lane
from fieldpost.core.delivery.routing import SlotPool
from fieldpost.core.delivery.slots import Share, SlotLimits, SlotUse
from fieldpost.core.kpi import Thresholds
from fieldpost.core.notification import Status
from fieldpost.core.search.notification_filter import Filter

BY = Thresholds()
CLAIM = 100
BATCH = UpkeepOptions().purge_batch

Call = Callable[[], Awaitable[object]]
Question = tuple[str, Call, Call]
"""Name, ours, reference."""


async def run(report: Report, _stores: Stores, quick: bool, rows: Sequence[int] = ()) -> None:
    for count in rows or ((200_000,) if quick else (1_000_000, 5_000_000)):
        with grown(count) as built:
            for kind in ("sqlite", "postgresql"):
                kept = await built.build(kind)
                name, size = f"table {kind}", f"{count:,} rows"
                async with _opened(kept) as (store, hand):
                    for which, ours, by_hand in [*await _looks(store, hand, kept), *_filters(store, hand, kept)]:
                        await _compare(report, f"{name} {which}", ours, by_hand, 7 if quick else 15, size)
                async with built.copy(kind) as copy, _opened(copy) as (store, hand):
                    notes = f"{size}, {CLAIM} claimed"
                    ours, by_hand = _claim(store, copy), lambda hand=hand: hand.claim(CLAIM)  # type: ignore[misc]
                    await _compare(report, f"{name} claim", ours, by_hand, 7 if quick else 15, notes)
                    await _purge(report, f"{name} purge", store, hand, copy)


async def _looks(store: Store, hand: Hand, kept: GrownStore) -> list[Question]:
    middle = await hand.middle()
    notifications = NotificationReader(store, SystemClock(), BY)
    deep = to_cursor(middle)
    return [
        ("kpis", lambda: store.read(kpis.snapshot, BY, now=kept.now), lambda: hand.kpis(BY)),
        ("counts", lambda: store.read(kpis.count_by_status), lambda: hand.counts(kpis.COUNT_MAX)),
        ("page 1", notifications.page, lambda: hand.page(None)),
        ("deep page", lambda: notifications.page(cursor=deep), lambda: hand.page(middle)),
        ("parked groups", notifications.parked_groups, hand.parked_groups),
    ]


def _filters(store: Store, hand: Hand, kept: GrownStore) -> Iterator[Question]:
    notifications = NotificationReader(store, SystemClock(), BY)

    def question(name: str, wanted: Filter, by_hand: Call) -> Question:
        return name, lambda: notifications.page(wanted), by_hand

    for status in (Status.PARKED, Status.RETRYING, Status.DELIVERED):
        yield question(status.value, Filter(statuses=(status,)), lambda s=status.value: hand.of_status(s))  # type: ignore[misc]
    yield question("by site", Filter(site="site-7"), lambda: hand.of_term("site"))
    yield question("by list", Filter(list_name="ops7"), lambda: hand.of_term("list"))
    yield question("by type", Filter(type="email"), lambda: hand.page(None))
    one, event = subscription_id(7), event_id(7)
    yield question("by subscription", Filter(subscription_id=one), lambda: hand.of_subscription(one))
    yield question("by event", Filter(event_id=event), lambda: hand.of_event(event))
    yield "events", lambda: EventReader(store).page(Actor("bench", Role.ADMIN)), hand.events
    until = kept.now - timedelta(days=100)
    yield question("by time", Filter(since=until - timedelta(days=1), until=until), lambda: hand.before(until))
    yield question("stuck", Filter(is_stuck=True), lambda: hand.stuck(kept.now - BY.stuck_after))
    yield question("rare word", Filter(subject="flood"), lambda: hand.of_term("rare"))
    yield question("common word", Filter(subject="stopped"), lambda: hand.of_term("common"))


def _claim(store: Store, copy: GrownStore) -> Call:
    async def call() -> None:
        share = Share(lane=Lane.FRESH, limit=CLAIM, per_key=CLAIM, busy={})
        order = Order(
            pool=SlotPool.LISTS,
            shares=[share],
            free=CLAIM,
            after=dict.fromkeys(Lane, ""),
            use=SlotUse(),
            limits=SlotLimits(CLAIM, CLAIM),
        )
        taken = await store.write(claim_orders.claim_order, "ours", order, lease_s=90, now=copy.now)
        assert len(taken[Lane.FRESH]) == CLAIM

    return call


async def _purge(report: Report, name: str, store: Store, hand: Hand, copy: GrownStore) -> None:
    """Purge a tenth of the table in ten parts, alternating between reference and ours."""
    cutoff = copy.now - timedelta(days=RETENTION_DAYS)
    span = PurgeRange(cutoff, BEGINNING, BATCH, copy.now)

    async def ours(limit: int) -> int:
        nonlocal span
        batch: PurgedBatch = await store.write(retention.purge_notifications, replace(span, limit=limit))
        span = replace(span, after=batch.after or span.after)
        return batch.deleted

    async def by_hand(limit: int) -> int:
        return await hand.purge(cutoff, limit)

    rates: dict[str, list[float]] = {"hand": [], "ours": []}
    longest = {"hand": 0.0, "ours": 0.0}
    limits = {"hand": BATCH, "ours": BATCH}
    for _ in range(5):
        for who, batch in (("hand", by_hand), ("ours", ours)):
            deleted, spent = 0, 0.0
            while deleted < copy.rows // 100:
                began = time.perf_counter()
                deleted += await batch(limits[who])
                took_s = time.perf_counter() - began
                spent += took_s
                longest[who] = max(longest[who], took_s)
                limits[who] = next_limit(limits[who], took_s, BATCH)
            rates[who].append(deleted / spent)
    notes = (
        f"{copy.rows:,} rows, a tenth in batches of {BATCH} at most; longest batch {longest['ours'] * 1000:.0f} ms,"
        f" by hand {longest['hand'] * 1000:.0f} ms"
    )
    report.add(_figure(name, rates["ours"], rates["hand"], "rows/s", notes))


async def _compare(report: Report, name: str, ours: Call, hand: Call, rounds: int, notes: str) -> None:
    """Alternate both, so that a slow moment of the machine affects both."""
    took: dict[str, list[float]] = {"hand": [], "ours": []}
    for number in range(rounds + 1):
        for who, call in (("hand", hand), ("ours", ours)):
            began = time.perf_counter()
            await call()
            if number:  # the first warms both up
                took[who].append(time.perf_counter() - began)
    median, by_hand = (statistics.median(took[who]) * 1000 for who in ("ours", "hand"))
    quickest, hand_quickest = (min(took[who]) * 1000 for who in ("ours", "hand"))
    told = f"{notes}; {median:.1f} ms, by hand {by_hand:.1f}; quickest {quickest:.1f}, by hand {hand_quickest:.1f}"
    rates = [[1 / t for t in took[who]] for who in ("ours", "hand")]
    report.add(_figure(name, *rates, "calls/s", told))


def _figure(name: str, ours: list[float], hand: list[float], unit: str, notes: str) -> Figure:
    median = statistics.median(ours)
    return Figure(name, median, unit, statistics.median(hand), (max(ours) - min(ours)) / median, notes)


@asynccontextmanager
async def _opened(grown_store: GrownStore) -> AsyncIterator[tuple[Store, Hand]]:
    store = open_store(grown_store.url)
    is_sqlite = grown_store.url.startswith("sqlite")
    hand: Hand = HandSqlite(grown_store) if is_sqlite else await HandPostgres.connect(grown_store)
    try:
        yield store, hand
    finally:
        await hand.close()
        await store.close()
