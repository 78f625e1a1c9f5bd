"""A synchronous standby hangs, the primary dies, the standby is promoted: everything acked is there."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import Connection, make_url, text

from fieldpost.central.store.engine.postgres_store import PostgresStore
from fieldpost.central.store.schema.migrate import upgrade_async
from fieldpost.clock import SystemClock
from fieldpost.core.errors import Unavailable
from fieldpost.link.messages import ACCEPTED, DUPLICATE, Item
from support.centre import Centre, ScriptedAdapter
from support.need import cannot_have
from support.postgres import PostgresUnavailable
from support.running_central import until
from support.standby import Replicated, query

ANSWER_S = 1.5


@pytest.fixture
async def replicated() -> AsyncIterator[Replicated]:
    try:
        servers = await Replicated().__aenter__()
    except PostgresUnavailable as error:
        cannot_have("postgres", str(error))
    try:
        await upgrade_async(servers.primary.url())
        yield servers
    finally:
        servers.remove()


@pytest.fixture
async def store(replicated: Replicated) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(make_url(replicated.primary.url()), None, answer_s=ANSWER_S, lease_s=1.0)
    yield opened
    await opened.close()


async def offer(centre: Centre, items: list[Item]) -> set[str]:
    """The ids that central acks."""
    try:
        ack = await centre.submit(*items)
    except Unavailable:
        return set()
    return {result.notification_id for result in ack.results if result.verdict in (ACCEPTED, DUPLICATE)}


def add_site(conn: Connection) -> str:
    return str(
        conn.execute(
            text("insert into sites (site_name, created_at) values ('north', now()) returning site_name")
        ).scalar_one()
    )


def read_sites(conn: Connection) -> list[str]:
    return list(conn.execute(text("select site_name from sites")).scalars())


@pytest.mark.fault(31)
@pytest.mark.parametrize("event", [None, "cancelled by an administrator", "primary restarted"])
async def test_acked_notifications_survive_the_promotion_of_a_standby_that_hung(
    replicated: Replicated, store: PostgresStore, event: str | None
) -> None:
    centre = Centre(store, SystemClock(), ScriptedAdapter())
    before = [centre.item() for _ in range(4)]
    during = [centre.item() for _ in range(8)]
    acked = await offer(centre, before)
    assert acked == {item.notification_id for item in before}

    replicated.freeze()
    offering = asyncio.create_task(offer(centre, during))
    if event == "cancelled by an administrator":
        await replicated.cancel_commits()
    elif event == "primary restarted":
        await until(replicated.waiting_commits, 10, "a commit to wait")
        await asyncio.to_thread(replicated.crash_primary)
    acked |= await offering
    acked |= await offer(centre, during)
    await store.close()

    url = await replicated.fail_over()
    rows = await query(url, "select notification_id::text as id from notifications")
    assert acked <= {row["id"] for row in rows}
    # The site still has the others, and sends them to the new primary.
    promoted = PostgresStore(make_url(url), None)
    try:
        centre = Centre(promoted, SystemClock(), ScriptedAdapter())
        assert await offer(centre, during) == {item.notification_id for item in during}
    finally:
        await promoted.close()


@pytest.mark.fault(31)
async def test_an_answer_from_stored_rows_waits_for_the_standby(replicated: Replicated, store: PostgresStore) -> None:
    await store.write(add_site)
    replicated.freeze()
    assert await store.read(read_sites) == ["north"]
    for answer in (store.confirm, store.write):
        with pytest.raises(Unavailable, match=r"no answer within 1\.5 s"):
            await answer(read_sites)
    replicated.thaw()
    assert await store.confirm(read_sites) == ["north"]


@pytest.mark.fault(31)
@pytest.mark.parametrize("how", ["write", "write_one"])
async def test_a_caller_that_is_cancelled_does_not_cancel_its_commit(
    replicated: Replicated, store: PostgresStore, how: str
) -> None:
    replicated.freeze()
    writing = asyncio.create_task(getattr(store, how)(add_site))
    waiting = await until(replicated.waiting_commits, 10, "the commit to wait")
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert await replicated.waiting_commits() == waiting
    assert await store.read(read_sites) == []
    replicated.thaw()
    await until(lambda: store.read(read_sites), 10, "the commit to end")


@pytest.mark.fault(31)
@pytest.mark.parametrize("how", ["write", "write_one"])
async def test_a_commit_that_an_administrator_cancels_still_waits_for_the_standby(
    replicated: Replicated, store: PostgresStore, how: str
) -> None:
    replicated.freeze()
    writing = asyncio.create_task(getattr(store, how)(add_site))
    await replicated.cancel_commits()
    await until(lambda: store.read(read_sites), 10, "the row to be visible without the standby")
    assert not writing.done()
    replicated.thaw()
    assert await writing == "north"
