"""Claims: who holds which row, until when, and what a crash leaves behind."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.store.notifications import claim_orders, claims, due, lists, targets
from fieldpost.central.store.notifications.claims import Claimed
from fieldpost.core.delivery.lanes import Lane
from fieldpost.core.delivery.routing import SlotPool
from fieldpost.core.delivery.slots import Share
from fieldpost.core.notification import Status, Target, TargetStatus
from fieldpost.testing import ManualClock
from support.centre import LEASE_S, Centre, order


async def claim_lone(centre: Centre, owner: str = "a") -> list[Claimed]:
    return await centre.store.write(claims.claim_lone, owner, lease_s=LEASE_S, now=centre.store.now())


async def hold(centre: Centre, notification_id: str, key: str = "channel:mail") -> None:
    await centre.execute(
        f"update notifications set held_by = '{key}', held_reason = 'down' where notification_id = '{notification_id}'"
    )


def ids(claimed: list[Claimed]) -> list[str]:
    return [one.notification.notification_id for one in claimed]


@pytest.mark.req("DEC-06", "DEC-07", "TBL-10")
async def test_a_claim_takes_the_row_with_its_targets_and_starts_an_attempt(centre: Centre, clock: ManualClock) -> None:
    await centre.add_list("ops", "b@example.org", "a@example.org")
    sent = await centre.send()
    clock.advance(5)
    [one] = await centre.claim()
    assert (one.notification.notification_id, one.token, one.claimed_at) == (sent, 1, clock.now())
    assert not one.is_lone
    assert not one.has_crashed
    assert set(one.notification.targets) == {Target("a@example.org"), Target("b@example.org")}
    assert await centre.claim_of(sent) == ("a", 1, 0)
    [attempt] = await centre.attempts(sent)
    assert (attempt.token, attempt.cycle, attempt.node_id, attempt.started_at) == (1, 1, "a", clock.now())
    assert (attempt.finished_at, attempt.outcome, attempt.is_lone) == (None, None, False)


@pytest.mark.req("DEC-07")
async def test_a_claim_changes_neither_status_nor_version(centre: Centre) -> None:
    sent = await centre.send()
    before = await centre.get(sent)
    await centre.claim()
    after = await centre.get(sent)
    assert (after.status, after.version, after.due_at) == (before.status, before.version, before.due_at)


@pytest.mark.req("DEC-06")
async def test_claimed_row_is_exclusive_until_its_lease_ends(centre: Centre, clock: ManualClock) -> None:
    sent = await centre.send()
    await centre.claim("a")
    clock.advance(LEASE_S - 0.001)
    assert await centre.claim("b") == []
    clock.advance(0.001)
    [taken] = await centre.claim("b")
    assert (taken.notification.notification_id, taken.token) == (sent, 2)
    assert await centre.claim_of(sent) == ("b", 2, 1)


@pytest.mark.req("DEC-06")
@pytest.mark.fault(21)
async def test_claims_at_the_same_time_never_share_a_row(centre: Centre, clock: ManualClock) -> None:
    for name in ("ops", "it", "management"):
        await centre.send_many(60, name)
    stores = [centre.store]
    if centre.is_postgresql:
        stores += [open_store(centre.store.url, clock) for _ in range(3)]
    try:
        taken = await asyncio.gather(
            *(
                stores[number % len(stores)].write(
                    claims.claim_due,
                    f"node-{number}",
                    Lane.FRESH,
                    limit=40,
                    per_key=25,
                    busy={},
                    after="",
                    lease_s=LEASE_S,
                    now=clock.now(),
                )
                for number in range(12)
            )
        )
    finally:
        for store in stores[1:]:
            await store.close()
    counted = Counter(i for claimed in taken for i in ids(claimed))
    assert set(counted.values()) == {1}
    assert len(counted) + len(await centre.claim(limit=180)) == 180


@pytest.mark.req("DSP-04", "LIF-03")
async def test_lane_claims_only_its_own_due_rows(centre: Centre, clock: ManualClock) -> None:
    fresh, due, later, done = await centre.send_many(4)
    await centre.execute(
        "update notifications set status = 'retrying', last_error = 'x', next_attempt_at = due_at"
        f" where notification_id = '{due}'",
        "update notifications set status = 'delivered', due_at = null, delivered_at = created_at,"
        f" terminal_at = created_at where notification_id = '{done}'",
    )
    soon = "due_at + interval '60 seconds'" if centre.is_postgresql else "due_at + 60000000"
    await centre.execute(
        f"update notifications set status = 'retrying', last_error = 'x', next_attempt_at = {soon}, due_at = {soon}"
        f" where notification_id = '{later}'"
    )
    assert ids(await centre.claim(lane=Lane.FRESH)) == [fresh]
    assert ids(await centre.claim(lane=Lane.RETRY)) == [due]
    clock.advance(60)
    assert ids(await centre.claim(lane=Lane.RETRY)) == [later]


@pytest.mark.req("DSP-05", "DEC-08")
async def test_longest_due_rows_of_a_list_are_claimed_first_up_to_the_limit(centre: Centre, clock: ManualClock) -> None:
    sent = []
    for _ in range(6):
        sent.append(await centre.send())
        clock.advance(1)
    assert set(ids(await centre.claim(limit=2))) == set(sent[:2])
    assert set(ids(await centre.claim(limit=3))) == set(sent[2:5])


@pytest.mark.req("DEC-08")
async def test_claims_per_key_are_limited_to_its_free_slots(centre: Centre) -> None:
    for name in ("a", "b", "c"):
        await centre.send_many(10, name)
    taken = await centre.claim(per_key=4, busy={"list:a": 4, "list:b": 3})
    assert Counter(one.notification.list_name for one in taken) == {"b": 1, "c": 4}


@pytest.mark.req("DEC-08", "DEC-09")
async def test_saturated_keys_use_up_nothing_of_the_limit(centre: Centre) -> None:
    for name in ("a", "b", "c", "z"):
        await centre.send_many(10, name)
    busy = dict.fromkeys(("list:a", "list:b", "list:c"), 4)
    taken = await centre.claim(limit=3, per_key=4, busy=busy)
    assert Counter(one.notification.list_name for one in taken) == {"z": 3}


@pytest.mark.req("DEC-09")
async def test_walk_starts_after_the_last_key_and_wraps_around(centre: Centre) -> None:
    for name in ("a", "b", "c"):
        await centre.send_many(2, name)
    taken = await centre.claim(limit=4, after="list:b")
    assert Counter(one.notification.list_name for one in taken) == {"c": 2, "a": 2}


@pytest.mark.req("DEC-10")
async def test_held_rows_are_not_claimed(centre: Centre, clock: ManualClock) -> None:
    held, free = await centre.send_many(2)
    await hold(centre, held)
    clock.advance(3600)
    assert ids(await centre.claim()) == [free]


@pytest.mark.fault(26)
@pytest.mark.req("DEC-06")
async def test_node_does_not_claim_its_rows_in_flight_again_even_after_a_clock_jump(
    centre: Centre, clock: ManualClock
) -> None:
    mine, others = await centre.send_many(2)
    assert len(await centre.claim("a")) == 2
    clock.step(7200)
    assert ids(await centre.claim("a", mine=[mine])) == [others]


@pytest.mark.req("DEC-11", "TBL-10")
async def test_targets_are_fixed_by_the_first_claim(centre: Centre, clock: ManualClock) -> None:
    await centre.add_list("ops", "old@example.org")
    sent = await centre.send()
    await centre.claim()
    await centre.store.write(lists.remove_list, "ops")
    await centre.add_list("ops", "new@example.org")
    clock.advance(LEASE_S)
    [again] = await centre.claim("b")
    assert again.notification.targets == (Target("old@example.org", TargetStatus.DUE),)
    assert await centre.store.read(targets.targets_of, [sent]) == {sent: [Target("old@example.org")]}
    assert await centre.store.read(targets.targets_of, []) == {}


@pytest.mark.req("DEC-07")
async def test_renewal_extends_only_claims_still_held_by_the_owner(centre: Centre, clock: ManualClock) -> None:
    kept, lost = await centre.send_many(2)
    await centre.claim("a")
    await centre.execute(f"update notifications set claim_token = 2 where notification_id = '{lost}'")
    clock.advance(60)
    renewed = await centre.store.write(
        claims.renew, "a", [(kept, 1), (lost, 1)], lease_s=LEASE_S, now=centre.store.now()
    )
    assert renewed == {kept}
    assert await centre.store.write(claims.renew, "b", [(kept, 1)], lease_s=LEASE_S, now=centre.store.now()) == set()
    clock.advance(LEASE_S - 1)
    assert ids(await centre.claim("b")) == [lost]


@pytest.mark.fault(59)
async def test_release_returns_rows_unchanged_with_the_reason(centre: Centre, clock: ManualClock) -> None:
    sent = await centre.send()
    before = await centre.get(sent)
    await centre.claim("a")
    clock.advance(3)
    assert await centre.store.write(claims.release, "b", [(sent, 1)], "not mine", now=centre.store.now()) == set()
    assert await centre.store.write(claims.release, "a", [(sent, 1)], "node stops", now=centre.store.now()) == {sent}
    after = await centre.get(sent)
    assert (after.status, after.retry_count, after.version, after.due_at) == (
        before.status,
        before.retry_count,
        before.version,
        before.due_at,
    )
    assert await centre.claim_of(sent) == (None, 1, 0)
    [attempt] = await centre.attempts(sent)
    assert (attempt.outcome, attempt.error, attempt.finished_at) == ("released", "node stops", clock.now())
    assert ids(await centre.claim("b")) == [sent]


@pytest.mark.req("DEC-07")
@pytest.mark.fault(62)
async def test_a_row_orphaned_twice_is_claimed_alone_and_known_as_crasher_only_after_that(
    centre: Centre, clock: ManualClock
) -> None:
    sent = await centre.send()
    for _ in range(2):
        assert await claim_lone(centre) == []
        assert not await centre.store.read(due.has_suspects, now=centre.store.now())
        assert ids(await centre.claim()) == [sent]
        clock.advance(LEASE_S)
    assert await centre.claim() == []
    assert await centre.store.read(due.has_suspects, now=centre.store.now())
    [lone] = await claim_lone(centre)
    assert lone.is_lone
    assert not lone.has_crashed
    assert [attempt.is_lone for attempt in await centre.attempts(sent)] == [False, False, True]
    clock.advance(LEASE_S)
    assert await claim_lone(centre) == [], "after the orphan of a lone attempt it waits for a while"
    await centre.store.write(claims.mark_crashed, sent, lone.token, "crashed", now=centre.store.now())
    [crasher] = await claim_lone(centre)
    assert crasher.has_crashed


@pytest.mark.req("DEC-07")
async def test_a_lone_claim_takes_one_row_and_a_released_one_is_alone_again(centre: Centre, clock: ManualClock) -> None:
    await centre.send_many(3)
    for _ in range(2):
        assert len(await centre.claim()) == 3
        clock.advance(LEASE_S)
    [first] = await claim_lone(centre)
    given_back = [(first.notification.notification_id, first.token)]
    await centre.store.write(claims.release, "a", given_back, "node stops", now=centre.store.now())
    found = {ids(await claim_lone(centre))[0] for _ in range(3)}
    assert len(found) == 3
    assert await claim_lone(centre) == []
    assert not await centre.store.read(due.has_suspects, now=centre.store.now())


@pytest.mark.req("DEC-22")
async def test_a_probe_takes_one_held_row_of_its_breaker(centre: Centre, clock: ManualClock) -> None:
    first, second, other = await centre.send_many(3)
    await hold(centre, first)
    await hold(centre, second)
    await hold(centre, other, "channel:other")

    async def probe(**more: Any) -> list[str]:
        given = {"lease_s": LEASE_S, "now": centre.store.now()} | more
        return ids(await centre.store.write(claims.claim_probes, "a", {"channel:mail": None}, **given))

    found = [await probe(), await probe(), await probe()]
    assert sorted(i for taken in found for i in taken) == sorted([first, second])
    clock.advance(LEASE_S)
    assert await probe(mine=[first, second]) == []
    assert len(await probe()) == 1


async def test_next_work_returns_waiting_lanes_and_the_time_of_the_first_timed_row(
    centre: Centre, clock: ManualClock
) -> None:
    async def next_work() -> Any:
        work = await centre.store.read_one(due.next_work, now=centre.store.now())
        return work.waiting, work.timed_due

    async def promoted() -> int:
        return await centre.store.write(due.promote, 100, now=centre.store.now())

    assert await next_work() == ({}, None)
    start = clock.now()
    held, claimed, retrying = [await centre.send(name) for name in "abc"]
    await hold(centre, held)
    later = "due_at + interval '60 seconds'" if centre.is_postgresql else "due_at + 60000000"
    await centre.execute(
        f"update notifications set status = 'retrying', last_error = 'x', next_attempt_at = {later}, due_at = {later},"
        f" is_timed = true where notification_id = '{retrying}'"
    )
    soon = start + timedelta(seconds=60)
    assert await next_work() == ({SlotPool.LISTS: [Lane.FRESH]}, soon)
    assert ids(await centre.claim()) == [claimed]
    assert await next_work() == ({}, soon)
    assert await promoted() == 0
    clock.advance(60)
    assert ids(await centre.claim(lane=Lane.RETRY)) == [], "a timed row is claimed once it was promoted"
    assert await promoted() == 1
    assert await next_work() == ({SlotPool.LISTS: [Lane.RETRY]}, None)
    assert ids(await centre.claim(lane=Lane.RETRY)) == [retrying]
    subscribed = await centre.send("d")
    await centre.execute(
        f"update notifications set delivery_key = 'subscription:d' where notification_id = '{subscribed}'"
    )
    assert await next_work() == ({SlotPool.SUBSCRIPTIONS: [Lane.FRESH]}, None)


@pytest.mark.req("DEC-06", "DEC-07")
async def test_a_new_embedded_process_voids_all_earlier_claims(sqlite_url: str, clock: ManualClock) -> None:
    from support.centre import open_centre

    async with open_centre(sqlite_url, clock) as centre:
        claimed, free = await centre.send_many(2)
        assert len(await centre.claim("a", limit=1)) == 1
        await centre.store.write(claims.void_all, now=centre.store.now())
        taken = {one.notification.notification_id: one for one in await centre.claim("b")}
        assert set(taken) == {claimed, free}
        assert sorted(one.token for one in taken.values()) == [1, 2]
        assert {one.notification.status for one in taken.values()} == {Status.PENDING}


@pytest.mark.req("DEC-08", "DEC-09")
async def test_lanes_are_claimed_by_shares_that_know_of_each_other(centre: Centre) -> None:
    """What one share takes counts for the next: neither a key's bound nor the whole may be passed."""
    retrying = await centre.send_many(10, "a")
    quoted = ", ".join(f"'{i}'" for i in retrying)
    await centre.execute(
        "update notifications set status = 'retrying', last_error = 'x', next_attempt_at = due_at"
        f" where notification_id in ({quoted})"
    )
    await centre.send_many(10, "a")
    await centre.send_many(10, "b")
    shares = [
        Share(lane=Lane.RETRY, limit=2, per_key=2, busy={}),
        Share(lane=Lane.FRESH, limit=9, per_key=4, busy={"list:b": 1}),
        Share(lane=Lane.RETRY, limit=9, per_key=4, busy={}),
    ]

    async def take(free: int) -> dict[Lane, Counter[str]]:
        taken = await centre.store.write(
            claim_orders.claim_order,
            "a",
            order(shares, free),
            lease_s=LEASE_S,
            now=centre.store.now(),
        )
        return {lane: Counter(one.notification.list_name for one in claimed) for lane, claimed in taken.items()}

    assert await take(3) == {Lane.RETRY: {"a": 2}, Lane.FRESH: {"a": 1}}
    assert await take(20) == {Lane.RETRY: {"a": 2}, Lane.FRESH: {"a": 2, "b": 3}}
