"""Breakers' rows, changed by compare-and-set, and the rows held behind them."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import Connection

from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.store.notifications import breakers
from fieldpost.core.delivery.breaker import Breaker, BreakerPolicy, BreakerState, record, take_probe
from fieldpost.core.delivery.outcome import Evidence
from fieldpost.testing import ManualClock
from support.centre import Centre

KEY = "channel:mail"
POLICY = BreakerPolicy(failures_max=1000)


def count_one(breaker: Breaker) -> Breaker:
    return replace(breaker, failures=breaker.failures + 1)


async def test_breaker_round_trips(centre: Centre, clock: ManualClock) -> None:
    opened = await centre.store.write(
        breakers.change,
        KEY,
        lambda b: record(b, Evidence.FAILS, "no route", BreakerPolicy(failures_max=1), clock.now()),
    )
    assert opened is not None
    until = clock.now() + timedelta(seconds=60)
    assert (opened.state, opened.open_until) == (BreakerState.OPEN, until)
    assert await centre.breaker() == replace(opened, version=1)
    clock.advance(60)
    await centre.store.write(breakers.change, KEY, lambda b: take_probe(b, "node-1", clock.now(), 90))
    probed = await centre.breaker()
    assert (probed.state, probed.probe_owner, probed.version) == (BreakerState.HALF_OPEN, "node-1", 2)


async def test_a_rule_that_changes_nothing_writes_nothing(centre: Centre) -> None:
    assert await centre.store.write(breakers.change, KEY, lambda b: b) == Breaker(KEY)
    assert await centre.store.write(breakers.change, KEY, lambda _: None) is None
    assert await centre.store.read(breakers.of_channels_and_lists) == {}


async def test_load_returns_the_requested_breakers_or_all(centre: Centre) -> None:
    for key in ("channel:a", "channel:b"):
        await centre.store.write(breakers.change, key, count_one)
    assert set(await centre.store.read(breakers.of_channels_and_lists)) == {"channel:a", "channel:b"}
    assert set(await centre.store.read(breakers.load, ["channel:b", "channel:c"])) == {"channel:b"}


@pytest.mark.req("DEC-22")
async def test_changes_at_the_same_time_are_all_counted(centre: Centre, clock: ManualClock) -> None:
    stores = [centre.store]
    if centre.is_postgresql:
        stores += [open_store(centre.store.url, clock) for _ in range(2)]
    try:
        await asyncio.gather(*(stores[n % len(stores)].write(breakers.change, KEY, count_one) for n in range(15)))
    finally:
        for store in stores[1:]:
            await store.close()
    found = await centre.breaker()
    assert (found.failures, found.version) == (15, 15)


@pytest.mark.req("DEC-22")
async def test_of_all_nodes_one_gets_the_probe(centre: Centre, clock: ManualClock) -> None:
    await centre.store.write(
        breakers.change, KEY, lambda b: record(b, Evidence.FAILS, "down", BreakerPolicy(failures_max=1), clock.now())
    )
    clock.advance(60)

    def ask(conn: Connection, node: str) -> bool:
        return breakers.change(conn, KEY, lambda b: take_probe(b, node, clock.now(), 90)) is not None

    assert sum(await asyncio.gather(*(centre.store.write(ask, f"node-{n}") for n in range(8)))) == 1


@pytest.mark.req("DEC-10", "DEC-22")
async def test_due_rows_of_the_keys_are_held_in_a_set_without_an_attempt(centre: Centre, clock: ManualClock) -> None:
    behind = await centre.send_many(5, "ops")
    other = await centre.send("it")
    [taken] = await centre.claim("a", limit=1, per_key=1, busy={"list:it": 1})
    until = clock.now() + timedelta(seconds=60)
    before = {i: await centre.get(i) for i in behind}

    async def hold(limit: int) -> int:
        return await centre.store.write(
            breakers.hold_rows, [("list:ops", KEY, "down", until)], limit, now=centre.store.now()
        )

    assert [await hold(3), await hold(3)] == [3, 1]
    in_flight = taken.notification.notification_id
    for i in set(behind) - {in_flight}:
        after = await centre.get(i)
        assert (after.held_by, after.held_reason, after.due_at) == (KEY, "down", until)
        assert (after.status, after.retry_count) == (before[i].status, before[i].retry_count)
        assert after.next_attempt_at == before[i].next_attempt_at
        assert await centre.attempts(i) == []
    assert (await centre.get(in_flight)).held_by is None
    assert (await centre.get(other)).held_by is None
    assert await centre.store.read(breakers.held_keys) == {KEY: until}


@pytest.mark.req("DEC-10", "DEC-22")
async def test_held_rows_are_released_in_limited_batches(centre: Centre, clock: ManualClock) -> None:
    behind = await centre.send_many(5)
    until = clock.now() + timedelta(seconds=600)
    await centre.store.write(breakers.hold_rows, [("list:ops", KEY, "down", until)], 100, now=centre.store.now())
    clock.advance(10)

    async def release(is_healthy: bool) -> int:
        return await centre.store.write(
            breakers.release_held, [Breaker(KEY, failures=0 if is_healthy else 1)], 2, now=centre.store.now()
        )

    assert await release(False) == 0, "behind a breaker that only counts, a row waits for the end of its hold"
    assert [await release(True) for _ in range(4)] == [2, 2, 1, 0]
    for i in behind:
        n = await centre.get(i)
        assert (n.held_by, n.held_reason, n.due_at) == (None, None, clock.now())
    assert await centre.store.read(breakers.held_keys) == {}


@pytest.mark.req("DEC-10")
async def test_rows_behind_a_counting_breaker_are_released_when_their_hold_ends(
    centre: Centre, clock: ManualClock
) -> None:
    sent = await centre.send()
    until = clock.now() + timedelta(seconds=10)
    await centre.store.write(breakers.hold_rows, [("list:ops", KEY, "down", until)], 100, now=centre.store.now())
    clock.advance(10)
    assert await centre.store.write(breakers.release_held, [Breaker(KEY, failures=1)], 10, now=centre.store.now()) == 1
    assert (await centre.get(sent)).due_at == until


async def test_held_keys_returns_each_breaker_with_its_earliest_row(centre: Centre, clock: ManualClock) -> None:
    start = clock.now()
    for number, name in enumerate(("a", "b", "a")):
        await centre.send(name)
        until = start + timedelta(seconds=60 - number)
        held_by = f"channel:{name}"
        await centre.store.write(
            breakers.hold_rows, [(f"list:{name}", held_by, "down", until)], 100, now=centre.store.now()
        )
    assert await centre.store.read(breakers.held_keys) == {
        "channel:a": start + timedelta(seconds=58),
        "channel:b": start + timedelta(seconds=59),
    }


async def test_rows_of_a_key_with_another_breaker_now_are_released(centre: Centre, clock: ManualClock) -> None:
    moved, stays = await centre.send("moved"), await centre.send("stays")
    until = clock.now() + timedelta(seconds=600)
    for name in ("moved", "stays"):
        await centre.store.write(
            breakers.hold_rows, [(f"list:{name}", KEY, "down", until)], 100, now=centre.store.now()
        )
    await centre.store.write(breakers.free_keys, ["list:stays"], KEY, now=centre.store.now())
    await centre.store.write(breakers.free_keys, [], "channel:new", now=centre.store.now())
    assert (await centre.get(moved)).held_by == (await centre.get(stays)).held_by == KEY
    await centre.store.write(breakers.free_keys, ["list:moved"], "channel:new", now=centre.store.now())
    n = await centre.get(moved)
    assert (n.held_by, n.held_reason, n.due_at) == (None, None, clock.now())
    assert (await centre.get(stays)).held_by == KEY
