"""The handoff from a site to central: an ack means a commit, anything else means that the site keeps what it has."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import aiohttp
import asyncpg
import msgspec
import pytest
from sqlalchemy import Connection, event
from structlog.testing import capture_logs

from fieldpost import Site
from fieldpost.central.store.engine.database_url import parse_url
from fieldpost.central.store.engine.sqlite_store import sqlite_module
from fieldpost.core.sites.message import Category, Message
from fieldpost.link.client import LinkClient
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.messages import Ack, Item, Refusal, Submit
from fieldpost.link.session import LinkSession
from fieldpost.site.carriers.central import CentralCarrier
from fieldpost.site.config.options import ForwardOptions
from fieldpost.site.forwarding.forwarder import Forwarder
from fieldpost.testing import ManualClock
from support.centre import Centre
from support.front import ADMIN, Front, served
from support.line import DEADLINE_S, Line, receive, submit_of

NOTHING_S = 0.3
"""How long nothing must happen."""


@asynccontextmanager
async def forwarding(line: Line, folder: Path, clock: ManualClock) -> AsyncIterator[tuple[Site, Forwarder]]:
    """A real site, with its buffer and its forwarder, that sends to this central."""
    with Site.create(folder, "plant-7", line.url, line.token) as site:
        options, session = ForwardOptions(), LinkSession()
        client = LinkClient(lambda: Endpoint(line.url, line.token), session, clock)
        forwarder = Forwarder(site._buffer, CentralCarrier(client, session), options, clock, Random(1))
        try:
            yield site, forwarder
        finally:
            await forwarder.close()


def waiting(site: Site) -> int:
    return site._buffer.depth().waiting.get(Category.NOTIFICATION, 0)


@asynccontextmanager
async def commits_held(centre: Centre) -> AsyncIterator[None]:
    """While this lasts no commit of a notification comes to its end, though all that is before it may."""
    if centre.is_postgresql:
        await centre.execute(
            """
            create function hold() returns trigger language plpgsql as
            $$ begin perform pg_advisory_xact_lock(7); return null; end $$
            """,
            """
            create constraint trigger hold after insert on notifications deferrable initially deferred
            for each row execute function hold()
            """,
        )
        holder = await asyncpg.connect(centre.store.url)
        try:
            await holder.execute("select pg_advisory_lock(7)")
            yield
        finally:
            await holder.close()
        return
    writer, go_on = centre.store._writer, threading.Event()  # type: ignore[attr-defined]

    def hold(_conn: Connection) -> None:
        _HELD.set()
        go_on.wait(DEADLINE_S)

    event.listen(writer, "commit", hold)
    try:
        yield
    finally:
        go_on.set()
        _HELD.clear()


_HELD = threading.Event()
"""Set while the writer of an embedded store is about to commit, and held."""


async def waits_for_commit(centre: Centre) -> bool:
    """Whether a transaction has done all its work and waits at its commit, which is when the held trigger is called."""
    if not centre.is_postgresql:
        return await asyncio.to_thread(_HELD.wait, 0.1)
    holder = await asyncpg.connect(centre.store.url)
    try:
        waits = "select query from pg_stat_activity where wait_event = 'advisory'"
        return bool(await holder.fetch(waits))
    finally:
        await holder.close()


async def fill_disk(centre: Centre) -> None:
    """What is written next finds the store's disk full."""
    if not centre.is_postgresql:
        await centre.execute("pragma max_page_count = 1")
        return
    await centre.execute(
        """
        create or replace function full_disk() returns trigger language plpgsql as
        $$ begin raise exception 'could not extend file' using errcode = '53100'; end $$
        """,
        "create or replace trigger full_disk before insert on notifications for each row execute function full_disk()",
    )


async def make_room(centre: Centre) -> None:
    if centre.is_postgresql:
        await centre.execute("drop trigger full_disk on notifications")
    else:
        await centre.execute("pragma max_page_count = 1000000")


@pytest.mark.req("ING-03", "DEC-02")
async def test_the_ack_waits_for_the_commit(line: Line) -> None:
    centre = line.front.centre
    async with line.websocket() as websocket:
        async with commits_held(centre):
            await websocket.send_bytes(submit_of(centre.item()))
            answer = asyncio.create_task(receive(websocket))
            async with asyncio.timeout(DEADLINE_S):
                while not await waits_for_commit(centre):
                    pass
            await asyncio.wait([answer], timeout=NOTHING_S)
            assert not answer.done()
            assert await line.rows() == (0, 0)
        ack = await answer
        assert isinstance(ack, Ack)
        assert ack.results[0].verdict == "accepted"
        assert await line.rows() == (1, 1)


@pytest.mark.req("DEC-02")
async def test_commits_of_the_store_are_synced(line: Line) -> None:
    asked = "show synchronous_commit" if line.front.centre.is_postgresql else "pragma synchronous"

    def ask(conn: Connection) -> str:
        return str(conn.exec_driver_sql(asked).scalar_one())

    assert await line.front.centre.store.write(ask) in ("on", "2")


@pytest.mark.req("ING-03", "ING-05", "DEC-12", "DEC-13", "SF-08")
async def test_without_a_commit_the_site_gets_the_reason_and_keeps_the_message(
    line: Line, tmp_path: Path, clock: ManualClock
) -> None:
    """Beside what can never be taken (DEC-12) only trouble of the store is no ack; it costs the site nothing."""
    async with forwarding(line, tmp_path / "site", clock) as (site, forwarder):
        sent = site.notify.to("ops").send("Pump 3 stopped", "x" * 200_000)
        for _ in range(3):
            await fill_disk(line.front.centre)
            swept = await forwarder.sweep()
            assert (swept.cleared, swept.boxed, swept.kept, waiting(site)) == (0, 0, 1, 1)
            assert "the central store is unavailable" in str(swept.error)
            assert await line.rows() == (0, 0)
            clock.advance(3600)
        await make_room(line.front.centre)
        swept = await forwarder.sweep()
        assert (swept.cleared, waiting(site)) == (1, 0)
    assert await line.rows() == (1, 1)
    assert (await line.front.centre.get(sent)).subject == "Pump 3 stopped"


@pytest.mark.req("ING-04", "ING-06", "ING-08", "DEC-12")
async def test_site_clears_new_and_duplicate_notifications(line: Line, tmp_path: Path, clock: ManualClock) -> None:
    """The caller need not care what the insert came to; only other content under the id is another matter."""
    async with forwarding(line, tmp_path / "site", clock) as (site, forwarder):
        new = site.notify.to("ops").send("new", "body")
        stood = site.notify.to("ops").send("stood already", "body")
        clashing = site.notify.to("ops").send("clashing", "body")
        # As if a former ack had been lost; and as if somebody else had used the third id.
        buffered = site._buffer.find(stood)
        assert isinstance(buffered, Message)
        await line.post(submit_of(msgspec.json.decode(buffered.payload, type=Item)))
        await line.post(submit_of(line.front.centre.item(notification_id=clashing)))
        before = await line.front.centre.get(stood)
        swept = await forwarder.sweep()
        assert (swept.cleared, swept.boxed, swept.kept, waiting(site)) == (2, 1, 0, 0)
        assert site.notify.status(clashing).status == "rejected"
    assert await line.front.centre.get(stood) == before
    assert (await line.front.centre.get(new)).subject == "new"
    assert (await line.rows())[0] == 3


@pytest.mark.req("ING-10", "ING-01")
async def test_concurrent_requests_get_their_own_answers(line: Line) -> None:
    tokens = [(await line.front.operate.sites.add(ADMIN, f"plant-{number}")).token for number in range(10, 16)]

    async def converse(number: int, token: str) -> None:
        """Several under way at once on one connection, with the same numbers as everybody else's."""
        async with line.websocket(token) as websocket:
            batches = [
                Submit(seq, tuple(line.front.centre.item() for _ in range(1 + (number + seq) % 7))) for seq in range(8)
            ]
            for batch in batches:
                await websocket.send_bytes(submit_of(*batch.items, seq=batch.seq))
            for batch in batches:
                ack = await receive(websocket)
                assert isinstance(ack, Ack)
                assert ack.seq == batch.seq
                told = [(r.notification_id, r.verdict) for r in ack.results]
                assert told == [(item.notification_id, "accepted") for item in batch.items]
                row = await line.front.centre.get(batch.items[0].notification_id)
                assert row.provenance.site == f"plant-{10 + number}"

    await asyncio.gather(*(converse(number, token) for number, token in enumerate(tokens)))


@pytest.mark.req("ING-09")
async def test_failed_persist_affects_no_other_and_leaves_nothing_open(front: Front) -> None:
    """Each submit is a transaction of its own, also where many share one sync of the disk."""
    centre = front.centre
    if centre.is_postgresql:
        await centre.execute(
            """
            create function planted() returns trigger language plpgsql as
            $$ begin if new.subject = 'poison' then raise exception 'planted'; end if; return new; end $$
            """,
            "create trigger planted before insert on notifications for each row execute function planted()",
        )
    else:
        await centre.execute(
            "create trigger planted before insert on notifications when new.subject = 'poison'"
            " begin select raise(abort, 'planted'); end"
        )
    with capture_logs():  # tracebacks, of what is planted
        await _submit_fine_and_poison(front)
    assert await nothing_is_open(centre)


async def _submit_fine_and_poison(front: Front) -> None:
    centre = front.centre
    async with served(front.app) as url, aiohttp.ClientSession(base_url=url) as http:
        line = Line(front, url, http)

        async def submit(number: int) -> tuple[Item, Ack | Refusal]:
            item = centre.item(subject="poison" if number % 5 == 0 else "fine")
            answer = await line.tell("websocket", submit_of(centre.item(), item)) if number % 5 == 0 else None
            return item, answer or await line.tell("post", submit_of(item))

        for item, answer in [
            one for _ in range(2) for one in await asyncio.gather(*(submit(number) for number in range(8)))
        ]:
            if item.subject == "poison":
                assert isinstance(answer, Refusal)
                assert answer.wait_s is not None, "it may be central's own mistake, so the site keeps it"
            else:
                assert isinstance(answer, Ack)
                assert (await centre.get(item.notification_id)).subject == "fine"
        assert (await line.rows())[0] == 12


async def nothing_is_open(centre: Centre) -> bool:
    """Whether no transaction of the store is left, seen from outside."""
    if centre.is_postgresql:
        visitor = await asyncpg.connect(centre.store.url)
        try:
            left = (
                "select 1 from pg_stat_activity where application_name = 'fieldpost' and xact_start is not null"
                " and datname = current_database()"
            )
            return not await visitor.fetch(left)
        finally:
            await visitor.close()
    other = sqlite_module.connect(parse_url(centre.store.url).database, isolation_level=None, timeout=0)
    try:
        other.execute("begin immediate")
        other.execute("rollback")
    finally:
        other.close()
    return True
