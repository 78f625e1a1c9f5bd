"""The dispatcher's loop when the database or the audit fails, and what wakes it when all is well."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from fieldpost.central.dispatch.dispatcher import Dispatcher
from fieldpost.central.operate.operate import Operate
from fieldpost.central.store.engine.database_url import open_store
from fieldpost.clock import SystemClock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.delivery.outcome import PermanentFailure, TransientFailure
from fieldpost.core.notification import Status, Target
from fieldpost.testing import ManualClock
from support.audit_refusal import allow_audit, refuse_audit
from support.centre import DEADLINE_S, Centre, ScriptedAdapter, open_centre
from support.pg_proxy import pg_proxy
from support.running_central import until


@asynccontextmanager
async def running(dispatcher: Dispatcher) -> AsyncIterator[None]:
    task = asyncio.create_task(dispatcher.run())
    try:
        yield
    finally:
        dispatcher.stop()
        async with asyncio.timeout(DEADLINE_S):
            await task


@asynccontextmanager
async def real_time(url: str) -> AsyncIterator[Centre]:
    """A centre under the machine's own clock, with a channel and a list."""
    async with open_centre(url, SystemClock()) as centre:
        await centre.add_channel(retry_delay_s=0.2)
        await centre.add_list()
        yield centre


async def ends_as(centre: Centre, notification_id: str, status: Status) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while (await centre.get(notification_id)).status is not status:
            await asyncio.sleep(0.005)


@pytest.mark.fault(61)
@pytest.mark.req("DEC-14", "AUD-08")
async def test_result_that_cannot_be_audited_is_not_written_until_it_can_be(
    mailing: Centre, clock: ManualClock
) -> None:
    sent = await mailing.send()
    before = await mailing.get(sent)
    dispatcher = mailing.dispatcher()
    async with dispatcher.running():
        await mailing.execute(*refuse_audit(mailing))
        with capture_logs() as logged:
            await dispatcher.sweep()
            # The writer of results has failed and waits before it tries again, beside the renewal of leases.
            await clock.wait_sleepers(2)
        assert [e["notification_id"] for e in logged if e["event"] == "result.not_written"] == [sent]
        after = await mailing.get(sent)
        assert (after.status, after.version, after.last_attempt_at) == (before.status, before.version, None)
        assert after.targets == (Target("ops@example.org"),)
        assert [a.outcome for a in await mailing.attempts(sent)] == [None]
        assert await mailing.story(sent) == ["notify_send submitted"]
        assert (await mailing.claim_of(sent))[0] == "node-1", "it stays in this node's hands"
        await mailing.execute(allow_audit(mailing))
        clock.advance(1)
        async with asyncio.timeout(DEADLINE_S):
            await dispatcher.idle()
    n = await mailing.get(sent)
    assert n.status is Status.DELIVERED, "nothing in auditing made it undelivered"
    assert mailing.adapter.sent() == [sent], "and it was delivered once"
    assert await mailing.story(sent) == [
        "notify_send submitted",
        "notify_deliver attempted",
        "notify_deliver delivered",
    ]


@pytest.mark.req("DEC-14")
async def test_result_that_cannot_be_written_does_not_delay_the_others(mailing: Centre, clock: ManualClock) -> None:
    sent = await mailing.send_many(6)
    cursed = sent[2]
    dispatcher = mailing.dispatcher()
    async with dispatcher.running():
        await mailing.execute(
            *refuse_audit(mailing, f"new.kind = 'notify_deliver' and new.correlation_id = '{cursed}'")
        )
        await dispatcher.sweep()
        await clock.wait_sleepers(2)
        assert [(await mailing.get(i)).status for i in sent if i != cursed] == [Status.DELIVERED] * 5
        assert (await mailing.get(cursed)).status is Status.PENDING
        more = await mailing.send()
        await mailing.execute(allow_audit(mailing))
        clock.advance(1)
        await mailing.deliver(dispatcher)
    assert (await mailing.get(cursed)).status is (await mailing.get(more)).status is Status.DELIVERED
    assert sorted(mailing.adapter.sent()) == sorted([*sent, more])


@pytest.mark.req("DSP-08", "DSP-13")
@pytest.mark.fault(66)
async def test_sweep_that_the_database_rejects_is_logged_and_repeated(pg_url: str) -> None:
    async with real_time(pg_url) as centre:
        await centre.execute(
            "create function planted() returns trigger language plpgsql as"
            " $$ begin raise exception 'planted' using errcode = '53100'; end $$",
            "create trigger planted before update on notifications for each row execute function planted()",
        )
        with capture_logs() as logged:
            async with running(centre.dispatcher(interval_s=0.05)):
                sent = await centre.send()
                await until(lambda: len([e for e in logged if e["event"] == "sweep.failed"]) >= 2)
                assert centre.adapter.envelopes == [], "nothing is sent without a claim"
                await centre.execute("drop trigger planted on notifications")
                await ends_as(centre, sent, Status.DELIVERED)
        assert {e["log_level"] for e in logged if e["event"] == "sweep.failed"} == {"error"}
        assert centre.adapter.sent() == [sent]


@pytest.mark.req("DSP-08", "DSP-13")
async def test_sweep_that_fails_unexpectedly_is_logged_as_such_and_repeated(sqlite_url: str) -> None:
    async with real_time(sqlite_url) as centre:
        await centre.execute(
            "create trigger planted before update on notifications begin select raise(abort, 'planted'); end"
        )
        with capture_logs() as logged:
            async with running(centre.dispatcher(interval_s=0.05)):
                sent = await centre.send()
                await until(lambda: any(e["event"] == "sweep.faulted" for e in logged))
                await centre.execute("drop trigger planted")
                await ends_as(centre, sent, Status.DELIVERED)
        assert {e["log_level"] for e in logged if e["event"] == "sweep.faulted"} == {"error"}


@pytest.mark.req("DSP-02", "CFG-03")
async def test_due_rows_are_found_at_the_interval_without_a_wake_up(pg_url: str) -> None:
    """Another node took it in, and its wake-up was lost."""
    async with real_time(pg_url) as centre:
        other_store = open_store(pg_url)
        other = Centre(other_store, SystemClock(), ScriptedAdapter())
        async with running(centre.dispatcher(interval_s=0.1)):
            sent = await other.send()
            await ends_as(centre, sent, Status.DELIVERED)
        await other_store.close()


@pytest.mark.req("DEC-08")
async def test_ingest_due_time_and_retry_wake_the_dispatcher_long_before_the_interval(
    store_url: str,
) -> None:
    async with real_time(store_url) as centre:
        async with running(centre.dispatcher(interval_s=3600)):
            # The first one may be found by the sweep at the start, the second only by a wake-up.
            await ends_as(centre, await centre.send(), Status.DELIVERED)
            centre.adapter.answer("ops", TransientFailure("451"))
            sent = await centre.send()
            await ends_as(centre, sent, Status.DELIVERED)
            centre.adapter.answer("ops", PermanentFailure("550"))
            parked = await centre.send()
            await ends_as(centre, parked, Status.PARKED)
            version = (await centre.get(parked)).version
            operate = Operate.over(centre.store, {}, centre.clock)
            await operate.notifications.retry(Actor("ada", Role.OPERATOR), parked, version)
            await ends_as(centre, parked, Status.DELIVERED)
        first, second = await centre.attempts(sent)
        assert (second.started_at - first.started_at).total_seconds() >= 0.2


@pytest.mark.fault(29)
@pytest.mark.req("DEC-03")
async def test_a_result_whose_commit_went_unanswered_has_no_second_effect(pg_url: str, clock: ManualClock) -> None:
    async with pg_proxy(pg_url) as proxy, open_centre(proxy.url, clock) as centre:
        await centre.add_channel()
        await centre.add_list()
        centre.adapter.answer("ops", TransientFailure("451"))
        sent = await centre.send()
        dispatcher = centre.dispatcher()

        async def cut_next(*_: object) -> TransientFailure:
            proxy.commits_to_cut = 1
            return TransientFailure("451")

        centre.adapter.next["ops"].clear()
        centre.adapter.answer("ops", cut_next)
        async with dispatcher.running():
            await centre.deliver(dispatcher)
        assert proxy.commits_cut == 1
        n = await centre.get(sent)
        assert (n.status, n.retry_count, n.version) == (Status.RETRYING, 1, 2)
        assert await centre.story(sent) == ["notify_send submitted", "notify_deliver attempted"]


@pytest.mark.fault(29)
async def test_a_claim_whose_commit_went_unanswered_is_an_orphan_and_nothing_is_lost(
    pg_url: str, clock: ManualClock
) -> None:
    async with pg_proxy(pg_url) as proxy, open_centre(proxy.url, clock) as centre:
        await centre.add_channel()
        await centre.add_list()
        sent = await centre.send_many(3)
        dispatcher = centre.dispatcher()
        async with dispatcher.running():
            await centre.deliver(dispatcher)
            again = await centre.send_many(3)
            clock.advance(1)
            proxy.commits_to_cut = 1
            await dispatcher.sweep()
            await dispatcher.idle()
            clock.advance(90)
            await centre.deliver(dispatcher)
        assert proxy.commits_cut == 1
        assert {(await centre.get(i)).status for i in sent + again} == {Status.DELIVERED}
        assert sorted(centre.adapter.sent()) == sorted(sent + again)
