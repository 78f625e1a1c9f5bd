"""Leases at work: renewed, run out, taken over by another node; the gate; clocks that leap."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from fieldpost.central.store.engine.database_url import open_store
from fieldpost.core.delivery.lanes import Lane
from fieldpost.core.delivery.outcome import Delivered, TransientFailure
from fieldpost.core.notification import Status, Target, TargetStatus
from fieldpost.testing import ManualClock
from support.centre import LEASE_S, Centre, Hanging, open_centre
from support.pg_proxy import pg_proxy


async def claim_and_die(centre: Centre, owner: str = "dead") -> list[str]:
    """A node that claims all that is due and is never heard of again."""
    taken = await centre.claim(owner)
    return [one.notification.notification_id for one in taken]


@pytest.mark.req("DEC-06", "DEC-07", "CFG-10", "CFG-11")
@pytest.mark.fault(22)
async def test_rows_of_a_dead_node_are_taken_over_after_their_lease(mailing: Centre, clock: ManualClock) -> None:
    sent = await mailing.send_many(3)
    assert sorted(await claim_and_die(mailing)) == sorted(sent)
    assert {(await mailing.get(i)).status for i in sent} == {Status.PENDING}
    dispatcher = mailing.dispatcher("node-2")
    async with dispatcher.running():
        clock.advance(LEASE_S - 2)
        await mailing.deliver(dispatcher)
        assert mailing.adapter.envelopes == []
        await mailing.deliver(dispatcher)
    assert sorted(mailing.adapter.sent()) == sorted(sent)
    for i in sent:
        assert (await mailing.get(i)).status is Status.DELIVERED
        orphan, finished = await mailing.attempts(i)
        assert (orphan.node_id, orphan.outcome) == ("dead", "abandoned"), "nobody knows how it went"
        assert orphan.finished_at == finished.started_at
        assert (finished.node_id, finished.outcome) == ("node-2", "delivered")


@pytest.mark.req("DEC-03", "DEC-01")
@pytest.mark.fault(23)
@pytest.mark.parametrize("late", [Delivered(), TransientFailure("451")], ids=lambda o: o.word)
async def test_node_paused_past_its_lease_changes_nothing_when_it_resumes(
    mailing: Centre, clock: ManualClock, late: Delivered | TransientFailure
) -> None:
    hanging = Hanging(late)
    mailing.adapter.answer("ops", hanging)
    sent = await mailing.send()
    # The paused node's own clock stands still, so it renews nothing.
    paused, awake = mailing.dispatcher("paused", clock=ManualClock()), mailing.dispatcher("awake")
    async with paused.running(), awake.running():
        await paused.sweep()
        await mailing.adapter.called(1)
        clock.advance(LEASE_S)
        await mailing.deliver(awake)
        after = await mailing.get(sent)
        assert after.status is Status.DELIVERED
        clock.advance(10)
        hanging.let_go()
        await paused.idle()
    assert await mailing.get(sent) == after
    assert [(a.node_id, a.outcome) for a in await mailing.attempts(sent)] == [
        ("paused", late.word),
        ("awake", "delivered"),
    ]
    told = await mailing.audit(sent)
    assert sorted(e.status for e in told) == ["attempted", "delivered", "skipped", "submitted"]
    [skipped] = [e for e in told if e.status == "skipped"]
    assert (skipped.source_node, skipped.actor) == ("paused", "system")


@pytest.mark.req("DEC-07")
async def test_a_long_attempt_keeps_its_lease(mailing: Centre, clock: ManualClock) -> None:
    hanging = Hanging(calls_gate=True)
    mailing.adapter.answer("ops", hanging)
    sent = await mailing.send()
    one, other = mailing.dispatcher("one"), mailing.dispatcher("other")
    async with one.running(), other.running():
        await one.sweep()
        await mailing.adapter.called(1)
        for _ in range(10):
            await clock.wait_sleepers(2)
            clock.advance(30)
            await clock.wait_sleepers(2)
            await other.sweep()
        hanging.let_go()
        await one.idle()
    assert mailing.adapter.sent() == [sent]
    assert (await mailing.get(sent)).status is Status.DELIVERED
    assert await mailing.claim_of(sent) == (None, 1, 0)


@pytest.mark.fault(24)
async def test_an_attempt_whose_claim_cannot_be_renewed_is_abandoned_unsent(
    mailing: Centre, clock: ManualClock
) -> None:
    hanging = Hanging(calls_gate=True)
    mailing.adapter.answer("ops", hanging)
    sent = await mailing.send()
    dispatcher = mailing.dispatcher()
    async with dispatcher.running():
        await dispatcher.sweep()
        await mailing.adapter.called(1)
        await mailing.execute(*refuse_renewals(mailing))
        await clock.wait_sleepers(1)
        clock.advance(30)
        await clock.wait_sleepers(1)
        clock.advance(15.001)
        hanging.let_go()
        await dispatcher.idle()
        assert hanging.sent == []
        n = await mailing.get(sent)
        assert (n.status, n.retry_count) == (Status.PENDING, 0)
        assert await mailing.claim_of(sent) == (None, 1, 0)
        [attempt] = await mailing.attempts(sent)
        assert attempt.outcome == "released"
        assert "45 s" in str(attempt.error)
        await mailing.deliver(dispatcher)
    assert (await mailing.get(sent)).status is Status.DELIVERED


@pytest.mark.fault(24)
async def test_nothing_is_sent_past_the_gate_without_the_database(pg_url: str, clock: ManualClock) -> None:
    async with pg_proxy(pg_url) as proxy, open_centre(proxy.url, clock) as centre:
        await centre.add_channel()
        await centre.add_list()
        hanging = Hanging(calls_gate=True)
        centre.adapter.answer("ops", hanging)
        sent = await centre.send()
        dispatcher = centre.dispatcher()
        async with dispatcher.running():
            await dispatcher.sweep()
            await centre.adapter.called(1)
            proxy.block()
            clock.advance(46)
            hanging.let_go()
            proxy.unblock()
            await dispatcher.idle()
            assert hanging.sent == []
            await centre.deliver(dispatcher)
        assert (await centre.get(sent)).status is Status.DELIVERED
        assert [a.outcome for a in await centre.attempts(sent)] == ["released", "delivered"]


@pytest.mark.fault(26)
@pytest.mark.req("DEC-06")
async def test_clock_jump_during_an_attempt_causes_no_second_one(mailing: Centre, clock: ManualClock) -> None:
    hanging = Hanging()
    mailing.adapter.answer("ops", hanging)
    sent = await mailing.send()
    dispatcher = mailing.dispatcher()
    async with dispatcher.running():
        await dispatcher.sweep()
        await mailing.adapter.called(1)
        clock.step(3600)
        await dispatcher.sweep()
        hanging.let_go()
        await dispatcher.idle()
    assert mailing.adapter.sent() == [sent]
    assert (await mailing.get(sent)).status is Status.DELIVERED


@pytest.mark.fault(26)
@pytest.mark.parametrize("leap_s", [3600, -3600])
async def test_clock_jump_during_a_backoff_neither_loses_nor_repeats_the_next_attempt(
    mailing: Centre, clock: ManualClock, leap_s: int
) -> None:
    mailing.adapter.answer("ops", TransientFailure("451"))
    sent = await mailing.send()
    dispatcher = mailing.dispatcher()
    async with dispatcher.running():
        await mailing.deliver(dispatcher)
        clock.step(leap_s)
        for _ in range(5):
            await mailing.deliver(dispatcher)
        assert len(mailing.adapter.envelopes) == (2 if leap_s > 0 else 1)
        clock.advance(60 + abs(leap_s))
        for _ in range(5):
            await mailing.deliver(dispatcher)
    assert len(mailing.adapter.envelopes) == 2
    assert (await mailing.get(sent)).status is Status.DELIVERED


@pytest.mark.fault(25)
@pytest.mark.req("DEC-04")
async def test_nodes_with_clocks_hours_apart_neither_steal_nor_stall(pg_url: str) -> None:
    """The database is the referee: its real clock judges, whatever the two nodes believe."""
    now = datetime.now(UTC)
    fast, slow = ManualClock(now + timedelta(hours=1)), ManualClock(now - timedelta(hours=1))
    store = open_store(pg_url)
    from support.centre import ScriptedAdapter

    centre = Centre(store, slow, ScriptedAdapter())
    await centre.add_channel(retry_delay_s=0.05)
    await centre.add_list()
    await centre.add_list("other")
    hanging = Hanging()
    centre.adapter.answer("ops", hanging)
    held = await centre.send()
    behind, ahead = centre.dispatcher("behind", clock=slow), centre.dispatcher("ahead", clock=fast)
    async with behind.running(), ahead.running():
        await behind.sweep()
        await centre.adapter.called(1)
        await ahead.sweep()
        assert centre.adapter.sent() == [held], "no early steal"
        centre.adapter.answer("other", TransientFailure("451"))
        retried = await centre.send("other")
        await ahead.sweep()
        await ahead.idle()
        async with asyncio.timeout(20):
            while (await centre.get(retried)).status is not Status.DELIVERED:
                slow.advance(1)  # time passes for the node, too
                await behind.sweep()
        hanging.let_go()
        await behind.idle()
    for i in (held, retried):
        delivered_at = (await centre.get(i)).delivered_at
        assert delivered_at is not None
        assert abs(delivered_at - datetime.now(UTC)) < timedelta(minutes=5)
    assert Counter(centre.adapter.sent()) == {held: 1, retried: 2}
    await store.close()


@pytest.mark.fault(21)
@pytest.mark.req("DEC-06", "DEC-08")
async def test_two_dispatchers_deliver_each_notification_once(pg_url: str, clock: ManualClock) -> None:
    async with open_centre(pg_url, clock) as centre:
        await centre.add_channel()
        names = [f"list-{n}" for n in range(10)]
        for name in names:
            await centre.add_list(name)
            await centre.send_many(60, name)
        stores = [open_store(pg_url, clock) for _ in range(2)]
        nodes = [Centre(store, clock, centre.adapter) for store in stores]
        dispatchers = [node.dispatcher(f"node-{n}", slots=64) for n, node in enumerate(nodes)]
        hanging = Hanging()
        centre.adapter.always = dict.fromkeys(names, hanging)
        async with dispatchers[0].running(), dispatchers[1].running():
            draining = asyncio.create_task(centre.drain(*dispatchers))
            await centre.adapter.called(2 * 64)  # neither has all of it before the other has begun
            hanging.let_go()
            await draining
        for store in stores:
            await store.close()
        sent = centre.adapter.sent()
        assert len(sent) == len(set(sent)) == 600
        [[tokens, delivered]] = await rows(
            centre, "select max(claim_token), count(*) from notifications where status = 'delivered'"
        )
        assert (tokens, delivered) == (1, 600)
        by_node = await rows(centre, "select node_id, count(*) from attempts group by node_id")
        assert sorted(node for node, _ in by_node) == ["node-0", "node-1"], "both took part"


@pytest.mark.req("DEC-11")
async def test_targets_reached_before_a_crash_are_known_if_written(mailing: Centre, clock: ManualClock) -> None:
    """Only what was written counts: after a crash in the second attempt the first one's results still stand."""
    await mailing.add_list("two", "a@example.org", "b@example.org")
    reached, owed = Target("a@example.org", TargetStatus.DELIVERED), Target("b@example.org", TargetStatus.DUE, "451")
    mailing.adapter.answer("two", TransientFailure("mixed", (reached, owed)))
    sent = await mailing.send("two")
    await mailing.deliver()
    clock.advance(60)
    await mailing.claim("dead", Lane.RETRY, limit=1)
    clock.advance(LEASE_S)
    await mailing.deliver()
    assert mailing.adapter.envelopes[-1].targets == ("b@example.org",)
    assert (await mailing.get(sent)).status is Status.DELIVERED


def refuse_renewals(centre: Centre) -> list[str]:
    """A trigger that lets no lease be lengthened."""
    if not centre.is_postgresql:
        return [
            "create trigger planted before update of lease_until on notifications"
            " when old.claim_owner = new.claim_owner begin select raise(abort, 'planted'); end"
        ]
    return [
        "create function planted() returns trigger language plpgsql as"
        " $$ begin raise exception 'planted' using errcode = '53100'; end $$",
        "create trigger planted before update of lease_until on notifications for each row"
        " when (old.claim_owner = new.claim_owner) execute function planted()",
    ]


async def rows(centre: Centre, sql: str) -> list[list[object]]:
    return await centre.store.read(lambda conn: [list(row) for row in conn.exec_driver_sql(sql)])
