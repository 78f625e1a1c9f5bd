"""PostgreSQL's passing troubles on the whole way of a notification: each write fails twice before it succeeds."""

import asyncio

import asyncpg
import pytest
from sqlalchemy import make_url
from structlog.testing import capture_logs

from fieldpost.central.store.engine.postgres_store import TRIES_MAX, PostgresStore
from fieldpost.clock import SystemClock
from fieldpost.core.delivery.outcome import Delivered, Outcome
from fieldpost.core.notification import Status
from support.centre import Centre, ScriptedAdapter, open_centre
from support.running_central import until

CODES = {
    "40P01": "deadlock",
    "40001": "serialization",
    "57014": "statement time-out",
    "57P01": "shutdown",
    "25P03": "idle in transaction",
}


async def plant(centre: Centre, code: str, condition: str) -> None:
    """From now on the database raises this for a write to `notifications` when the condition is so. `turn` counts the
    transactions that write; a sequence knows no rollback, so failed ones count too."""
    await centre.execute(
        "create sequence turns",
        f"""
        create function planted() returns trigger language plpgsql as $$
        declare turn bigint;
        begin
            if current_setting('planted.seen', true) = txid_current()::text then return null; end if;
            perform set_config('planted.seen', txid_current()::text, true);
            turn := nextval('turns');
            if {condition} then raise exception 'planted' using errcode = '{code}'; end if;
            return null;
        end $$
        """,
        "create trigger planted before insert or update on notifications for each statement execute function planted()",
    )


@pytest.mark.fault(30)
@pytest.mark.parametrize("code", CODES, ids=CODES.values())
async def test_transient_failures_never_count_against_a_notification(pg_url: str, code: str) -> None:
    async with open_centre(pg_url) as centre:
        await centre.add_channel()
        await centre.add_list()
        await plant(centre, code, "turn % 3 <> 0")
        with capture_logs() as logged:
            sent = await centre.send_many(5)
            await centre.deliver()
        for i in sent:
            n = await centre.get(i)
            assert (n.status, n.retry_count, n.last_error) == (Status.DELIVERED, 0, None)
            assert await centre.story(i) == [
                "notify_send submitted",
                "notify_deliver attempted",
                "notify_deliver delivered",
            ]
        assert sorted(centre.adapter.sent()) == sorted(sent)
        tries = [event["tries"] for event in logged if event["event"] == "store.tried_again"]
        assert len(tries) >= 6, "taking in, claiming and writing the ends each had to be tried again twice"
        assert max(tries) < TRIES_MAX


@pytest.mark.fault(30)
async def test_unwritten_result_is_kept_until_it_can_be_written(pg_url: str) -> None:
    async with open_centre(pg_url, SystemClock()) as centre:
        await centre.add_channel()
        await centre.add_list()

        async def trouble_begins(_: object) -> Outcome:
            await plant(centre, "40001", "true")
            return Delivered()

        centre.adapter.answer("ops", trouble_begins)
        node = centre.dispatcher()
        with capture_logs() as logged:
            async with node.running():
                sent = await centre.send()
                await node.sweep()
                await until(lambda: any(e["event"] == "result.kept" for e in logged), 20, "the end to be kept")
                assert (await centre.get(sent)).status is Status.PENDING
                await centre.execute("drop function planted() cascade")
                async with asyncio.timeout(20):
                    await node.idle()
        assert (await centre.get(sent)).status is Status.DELIVERED
        assert centre.adapter.sent() == [sent]
        assert [a.outcome for a in await centre.attempts(sent)] == ["delivered"]


@pytest.mark.fault(30)
async def test_statement_past_its_timeout_is_retried(pg_url: str) -> None:
    visitor = await asyncpg.connect(pg_url)
    store = PostgresStore(make_url(pg_url), None, answer_s=1.5)
    try:
        locking = visitor.transaction()
        await locking.start()
        await visitor.execute("lock table notifications in exclusive mode")
        centre = Centre(store, SystemClock(), ScriptedAdapter())
        with capture_logs() as logged:
            sending = asyncio.create_task(centre.send_many(3))
            await until(lambda: any(e["event"] == "store.tried_again" for e in logged), 20, "a second try")
            await locking.rollback()
            sent = await sending
        assert "statement timeout" in next(e["error"] for e in logged if e["event"] == "store.tried_again")
        assert {(await centre.get(i)).status for i in sent} == {Status.PENDING}
    finally:
        await visitor.close()
        await store.close()
