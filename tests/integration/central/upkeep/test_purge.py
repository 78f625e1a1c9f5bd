"""The purge as a node runs it: by its interval, under the lead, its faults contained; and what a site hears then."""

import asyncio
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, text
from structlog.testing import capture_logs

from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.store.engine.purging import BEGINNING, PurgeRange
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import routes
from fieldpost.central.store.notifications import records, retention
from fieldpost.central.upkeep.leader import Leader
from fieldpost.central.upkeep.options import UpkeepOptions
from fieldpost.central.upkeep.purge import Purge
from fieldpost.core.delivery import lifecycle
from fieldpost.core.delivery.outcome import PermanentFailure
from fieldpost.core.events.route import Cooldown
from fieldpost.core.ids import new_id
from fieldpost.core.notification import Notification
from fieldpost.testing import ManualClock
from support.centre import DEADLINE_S, Centre, ScriptedAdapter, open_centre

DAY_S = 86_400.0
YEAR_S = 365 * DAY_S
DELIVER = (
    "update notifications set status = 'delivered', delivered_at = created_at, terminal_at = created_at, due_at = null"
)


async def purge_of(centre: Centre, **options: Any) -> Purge:
    """A purge on a node that leads."""
    made = UpkeepOptions(**options)
    leader = Leader(centre.store, "node-1", centre.clock, made)
    assert await leader.campaign()
    return Purge(centre.store, centre.clock, leader, made)


async def ids(centre: Centre, table: str = "notifications") -> set[str]:
    def look(conn: Connection) -> set[str]:
        return {str(row[0]) for row in conn.execute(text(f"select notification_id from {table}"))}

    return await centre.store.read(look)


@pytest.mark.req("CFG-01", "CFG-02", "DEC-18")
async def test_old_terminal_rows_of_every_status_are_purged_and_all_others_kept(
    mailing: Centre, clock: ManualClock
) -> None:
    mailing.adapter.answer("ops", PermanentFailure("550 unknown"), PermanentFailure("550 unknown"))
    parked, discarded = await mailing.send_many(2)
    await mailing.deliver()
    seen = await mailing.get(discarded)
    now = clock.now()
    assert await mailing.store.write(records.change, seen, lifecycle.discard(seen, now), now)
    delivered = await mailing.send()
    await mailing.deliver()
    clock.advance(YEAR_S)
    live = await mailing.send("unknown to the dispatcher yet")
    young = await mailing.send()
    purge = await purge_of(mailing)
    with capture_logs() as logs:
        assert await purge.sweep()
    assert await ids(mailing) == {live, young, delivered}, "the delivered one is at the very end of its year"
    assert await ids(mailing, "tombstones") == {parked, discarded}
    (told,) = [line for line in logs if line["event"] == "purge.finished"]
    assert (told["log_level"], told["notifications"], told["failed"]) == ("info", 2, [])


@pytest.mark.req("DEC-18", "ING-04", "DEC-12")
async def test_restored_old_site_causes_no_second_delivery(mailing: Centre, clock: ManualClock) -> None:
    """What was purged and comes again from an old copy of the buffer is a duplicate; with other content, a conflict."""
    items = [mailing.item(), mailing.item(subject="Pump 4 stopped")]
    await mailing.submit(*items)
    await mailing.deliver()
    # Indexed long ago: the ids are known by their tombstones alone.
    await mailing.store.write(lambda conn: conn.execute(text("delete from search_backlog")))
    clock.advance(YEAR_S + DAY_S)
    purge = await purge_of(mailing)
    assert await purge.sweep()
    assert await ids(mailing) == set()
    again = await mailing.submit(*items)
    assert {result.verdict for result in again.results} == {"duplicate"}
    other = mailing.item(notification_id=items[0].notification_id, subject="Something else")
    (refused,) = (await mailing.submit(other)).results
    assert (refused.verdict, refused.code) == ("rejected", "notification.conflict")
    (of_another_site,) = (await mailing.submit(items[0], site="another")).results
    assert of_another_site.verdict == "rejected"
    await mailing.deliver()
    assert await ids(mailing) == set()
    assert len(mailing.adapter.envelopes) == 2


@pytest.mark.req("DEC-18")
async def test_a_tombstone_stays_ninety_days_beyond_another_retention(mailing: Centre, clock: ManualClock) -> None:
    item = mailing.item()
    await mailing.submit(item)
    await mailing.deliver()
    clock.advance(YEAR_S + DAY_S)
    await (await purge_of(mailing)).sweep()
    clock.advance((365 + 90) * DAY_S)
    await (await purge_of(mailing)).sweep()
    assert (await mailing.submit(item)).results[0].verdict == "duplicate"
    clock.advance(1)
    await (await purge_of(mailing)).sweep()
    assert await ids(mailing, "tombstones") == set()


@pytest.mark.req("DEC-18")
async def test_a_tombstone_stays_as_long_as_the_audit_entry_of_its_send(mailing: Centre, clock: ManualClock) -> None:
    """Even if the audit's retention was raised after the tombstone was due: a repeated send stays a duplicate."""
    item = mailing.item()
    await mailing.submit(item)
    await mailing.deliver()
    clock.advance(YEAR_S + DAY_S)
    await (await purge_of(mailing, audit_retention_days=3650)).sweep()
    clock.advance(2 * YEAR_S)
    await mailing.store.write(
        retention.TOMBSTONES.purge, PurgeRange(clock.now() - timedelta(days=1), BEGINNING, 10, clock.now())
    )
    assert (await mailing.submit(item)).results[0].verdict == "duplicate"
    assert await ids(mailing) == set()
    clock.advance(10 * YEAR_S)
    await (await purge_of(mailing, audit_retention_days=3650)).sweep()
    assert await ids(mailing, "tombstones") == set()


@pytest.mark.req("CFG-01", "CFG-07", "DSP-11")
async def test_a_node_purges_when_it_starts_and_then_daily(mailing: Centre, clock: ManualClock) -> None:
    purge = await purge_of(mailing, lease_s=10 * DAY_S)
    with capture_logs() as logs:

        def purged() -> list[int]:
            return [line["notifications"] for line in logs if line["event"] == "purge.finished"]

        running = asyncio.create_task(purge.run())
        await clock.wait_sleepers(1)
        assert purged() == [0]
        for day in (1, 2):
            assert clock.next_wake_in_s() == DAY_S
            clock.advance(DAY_S)
            await clock.wait_sleepers(1)
            assert len(purged()) == day + 1
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_a_node_that_does_not_lead_purges_nothing(mailing: Centre, clock: ManualClock) -> None:
    await mailing.send()
    await mailing.deliver()
    clock.advance(YEAR_S + DAY_S)
    purge = await purge_of(mailing)
    clock.advance(15)  # the lead has run out
    assert not await purge.sweep()
    assert len(await ids(mailing)) == 1


@pytest.mark.req("CFG-02")
async def test_fault_in_one_table_is_contained_and_logged(mailing: Centre, clock: ManualClock) -> None:
    await mailing.send()
    await mailing.deliver()
    clock.advance(YEAR_S + DAY_S)
    # The audit cannot be deleted from: a trigger that somebody left in the database.
    if mailing.is_postgresql:
        await mailing.execute(
            "create function no() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$",
            "create trigger no before delete on audit for each row execute function no()",
        )
    else:
        await mailing.execute("create trigger no before delete on audit begin select raise(abort, 'no'); end")
    purge = await purge_of(mailing)
    with capture_logs() as logs:
        assert not await purge.sweep()
    assert await ids(mailing) == set(), "what can be purged is"
    told = {line["event"]: line for line in logs}
    assert told["purge.faulted"]["table"] == "audit"
    assert (told["purge.finished"]["failed"], told["purge.finished"]["notifications"]) == (["audit"], 1)
    await mailing.execute("drop trigger no on audit" if mailing.is_postgresql else "drop trigger no")
    assert await purge.sweep()


@pytest.mark.req("CFG-02")
async def test_failed_purge_is_retried_soon(mailing: Centre, clock: ManualClock) -> None:
    purge = await purge_of(mailing, lease_s=10 * DAY_S)
    await mailing.execute("alter table samples rename to gone")
    with capture_logs() as logs:
        running = asyncio.create_task(purge.run())
        await clock.wait_sleepers(1)
        await mailing.execute("alter table gone rename to samples")
        clock.advance(600)
        await clock.wait_sleepers(1)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    assert [line["failed"] for line in logs if line["event"] == "purge.finished"] == [["samples"], []]


@pytest.mark.req("DEC-18")
async def test_other_writes_run_between_the_batches(mailing: Centre, clock: ManualClock) -> None:
    """Arrivals while hundreds of rows are purged in small batches: nothing waits for the purge to end."""
    await mailing.send_many(300)
    await mailing.deliver(slots=300, slots_per_key=300)
    clock.advance(YEAR_S + DAY_S)
    purge = await purge_of(mailing, purge_batch=5)
    await asyncio.gather(ids(mailing), ids(mailing))  # a connection for each of the two is open from now on
    sweeping = asyncio.create_task(purge.sweep())
    arrived = 0
    while not sweeping.done():
        await mailing.send()
        arrived += 1
    assert await sweeping
    assert arrived > 1
    assert len(await ids(mailing)) == arrived
    assert len(await ids(mailing, "tombstones")) == 300


@pytest.mark.fault(56)
@pytest.mark.req("DEC-18", "DEC-03")
async def test_retried_row_does_not_vanish_in_a_race_with_purge(
    mailing: Centre, clock: ManualClock, store_url: str
) -> None:
    """Operators retry old parked rows while they are purged, on PostgreSQL from threads with stores of their own: each
    row is either retried, and stays, or purged, and its retry changes nothing; never both."""
    mailing.adapter.always["ops"] = PermanentFailure("550 unknown")
    sent = await mailing.send_many(400)
    await mailing.deliver(slots=400, slots_per_key=400)
    clock.advance(YEAR_S + DAY_S)
    backwards = [await mailing.get(i) for i in reversed(sent)]
    purge = await purge_of(mailing, purge_batch=7)
    retried: set[str] = set()

    async def retry(store: Store, rows: list[Notification]) -> None:
        for n in rows:
            now = clock.now()
            if await store.write(records.change, n, lifecycle.retry(n, now), now):
                retried.add(n.notification_id)

    async def retry_apart(rows: list[Notification]) -> None:
        async with open_centre(store_url, clock) as own:
            await own.get(rows[0].notification_id)  # it has its connection now
            await asyncio.to_thread(start.wait, DEADLINE_S)
            await retry(own.store, rows)

    async def sweep_with_them() -> bool:
        await asyncio.to_thread(start.wait, DEADLINE_S)
        return await purge.sweep()

    parts = [backwards[part::4] for part in range(4)]
    if mailing.is_postgresql:
        start = threading.Barrier(len(parts) + 1)
        sweeping = asyncio.create_task(sweep_with_them())
        await asyncio.gather(*(asyncio.to_thread(lambda p=part: asyncio.run(retry_apart(p))) for part in parts))
    else:  # the one process has one writer thread, which takes retries and batches as they come
        sweeping = asyncio.create_task(purge.sweep())
        await asyncio.gather(*(retry(mailing.store, part) for part in parts))
    assert await sweeping
    left, buried = await ids(mailing), await ids(mailing, "tombstones")
    assert left == retried
    assert left | buried == set(sent)
    assert not left & buried
    assert retried, "retry won sometimes"
    assert buried, "purge won sometimes"
    for notification_id in left:
        n = await mailing.get(notification_id)
        assert (n.status.value, n.cycle) == ("pending", 2)


@pytest.mark.req("DEC-04")
async def test_age_is_measured_by_the_clock_of_the_database(pg_url: str) -> None:
    """The node's clock stands in January; by the database's the row is a second old, and the retention is a day."""
    store = open_store(pg_url)
    try:
        centre = Centre(store, ManualClock(), ScriptedAdapter())
        assert await store.read(database_time, None) - centre.clock.now() > timedelta(days=30)
        await centre.send()
        await centre.execute(DELIVER)
        purge = await purge_of(centre, terminal_retention_days=1)
        assert await purge.sweep()
        assert len(await ids(centre)) == 1
        await centre.execute("update notifications set terminal_at = now() - interval '25 hours'")
        assert await purge.sweep()
        assert await ids(centre) == set()
    finally:
        await store.close()


async def test_ended_cooldowns_are_purged(centre: Centre, clock: ManualClock) -> None:
    route_id = new_id(clock.now(), bytes(10))

    def begin(conn: Connection, value: str) -> None:
        routes.lock_cooldowns(conn, [(route_id, value)])
        routes.write_cooldowns(conn, [Cooldown(route_id, value, clock.now(), suppressed=1)])

    await centre.store.write(begin, "api")
    clock.advance(UpkeepOptions().sample_retention_days * DAY_S + 1)
    await centre.store.write(begin, "db")
    assert await (await purge_of(centre)).sweep()
    assert await centre.store.read(routes.suppressed_counts) == {route_id: 1}
