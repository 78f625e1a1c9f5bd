"""Faults between relay, database and central: nothing lost, nothing twice, and attempts counted only where due."""

import asyncio
import signal
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fieldpost.clock import SystemClock
from fieldpost.core.errors import Unavailable
from fieldpost.core.events.outbox import OutboxStatus
from fieldpost.core.events.relaying import CHECK_FIRST, Published
from fieldpost.outbox.relay.database import SqlTransaction, parse_database
from fieldpost.outbox.relay.mariadb import MariadbOutbox
from fieldpost.outbox.relay.postgresql import PostgresqlOutbox
from fieldpost.outbox.relay.relay import RelayLoop, open_database
from fieldpost.outbox.relay.sqlite import SqliteOutbox, newest_sqlite
from fieldpost.outbox.relay.transactions import ClaimedRow, OutboxTransactions
from fieldpost.outbox.tables import OutboxDatabase
from fieldpost.testing.http.server import HttpServer
from support.outbox_apps import DEADLINE_S, AppDatabase, Relaying, open_relaying
from support.pg_proxy import PgProxy, pg_proxy
from support.ports import free_port
from support.postgres import PostgresServer
from support.publish_line import publish_line
from support.relay_process import RelayProcess

UNCHANGED = "status, retries, last_attempt_at, updated_at, due_at, published_at, last_error"


@pytest.mark.fault(17)
@pytest.mark.req("DEC-84", "DEC-53")
async def test_a_lost_answer_is_one_event_and_counts_as_an_attempt(app: AppDatabase, relaying: Relaying) -> None:
    subscription = await relaying.hooks.subscribe()
    [event_id] = app.add()
    async with publish_line(relaying.url) as line:
        line.answers_to_lose = 2  # the relay sends the request again at once when the connection ends
        async with relaying.running(url=line.url, retry="fixed:0.5s:0", follow_s=3600):
            await app.until(lambda: app.row(event_id, "retries") == (1,))
            await app.until(lambda: app.row(event_id, "published_at") != (None,))
    assert app.row(event_id, "status, retries, last_error") == ("PROCESSING", 1, None)
    assert await relaying.events() == [event_id]
    async with relaying.running():
        await relaying.deliver()
        await app.until_status("SENT", [event_id])
    assert len(relaying.hooks.adapter.sent(subscription.name)) == 1


@pytest.mark.fault(17)
@pytest.mark.dec("DEC-84")
async def test_an_unanswered_row_fails_with_its_reason_and_is_due_by_the_policy(
    app: AppDatabase, relaying: Relaying
) -> None:
    [event_id] = app.add()
    async with publish_line(relaying.url) as line:
        line.is_holding = True
        async with relaying.running(url=line.url, timeout_s=0.5, retry="fixed:1h:0"):
            await app.until_status("FAILED", [event_id])
    retries, error = app.row(event_id, "retries, last_error")
    assert (retries, error) == (1, "relay.unanswered: central did not answer within 0.5 s")
    assert await relaying.events() == [event_id], "central has it, and the relay cannot know"


@pytest.mark.req("DEC-54", "DEC-84")
@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503, None])
async def test_an_unreachable_central_changes_nothing_in_the_rows(
    app: AppDatabase, relaying: Relaying, status: int | None
) -> None:
    [event_id] = app.add()
    before = app.row(event_id, UNCHANGED)
    async with HttpServer() as server:
        server.on().answer(status or 200)
        url = server.url if status else f"http://127.0.0.1:{free_port()}"
        async with relaying.running(url=url):
            await app.until(lambda: app.row(event_id, "claim_token")[0] >= 2)
    assert app.row(event_id, UNCHANGED) == before
    assert app.row(event_id, "claim_owner, lease_until") == (None, None)
    async with relaying.running():
        await app.until_status("SENT", [event_id])


@pytest.mark.fault(71)
@pytest.mark.dec("DEC-01", "DEC-30", "DEC-59")
async def test_a_relay_killed_between_publishing_and_recording_leaves_one_event(
    app: AppDatabase, relaying: Relaying, tmp_path: Path
) -> None:
    subscription = await relaying.hooks.subscribe()
    [event_id] = app.add()
    options = {"lease_s": 2.0, "timeout_s": 1.0}
    async with publish_line(relaying.url) as line:
        line.is_holding = True
        async with RelayProcess(relaying.options(url=line.url, **options), tmp_path) as killed:
            await line.until(1)
            killed.send(signal.SIGKILL)
    assert app.row(event_id) == ("PROCESSING",)
    async with relaying.running(**options):
        await app.until(lambda: app.row(event_id, "claim_token, published_at is not null") == (2, True))
        await relaying.deliver()
        await app.until_status("SENT", [event_id])
    assert await relaying.events() == [event_id]
    assert len(relaying.hooks.adapter.sent(subscription.name)) == 1
    assert app.query("select status, cycle from notification_history") == [("sent", 1)]
    assert app.row(event_id, "retries") == (0,), "central answered `duplicate`, which is no failure"


@pytest.mark.dec("DEC-03", "DEC-30")
async def test_a_relay_frozen_past_its_lease_changes_no_row_that_another_has_claimed(
    app: AppDatabase, relaying: Relaying
) -> None:
    ids = app.add(3)
    database = open_database(relaying.options(), newest_sqlite())
    frozen, other = (OutboxTransactions(app.kind, name) for name in ("frozen", "other"))
    try:
        claimed = await database.run(lambda: frozen.claim(100, 1_000_000, 60.0))
        assert sorted(row.event_id for row in claimed) == sorted(ids)
        assert await database.run(lambda: other.claim(100, 1_000_000, 60.0)) == [], "not before the lease ends"
        app.execute("update event_outbox set lease_until = created_at")
        taken = await database.run(lambda: other.claim(100, 1_000_000, 60.0))
        assert len(taken) == 3
        before = [app.row(one, f"{UNCHANGED}, claim_owner, claim_token, lease_until") for one in ids]
        changes = [(row, Published(OutboxStatus.SENT, CHECK_FIRST)) for row in claimed]
        assert await database.run(lambda: frozen.record(changes)) == 0
        assert [app.row(one, f"{UNCHANGED}, claim_owner, claim_token, lease_until") for one in ids] == before
        changes = [(row, Published(OutboxStatus.SENT, CHECK_FIRST)) for row in taken]
        assert await database.run(lambda: other.record(changes)) == 3
    finally:
        await database.close()


async def test_a_frozen_process_that_thaws_publishes_nothing_twice(
    app: AppDatabase, relaying: Relaying, tmp_path: Path
) -> None:
    async with (
        publish_line(relaying.url) as line,
        RelayProcess(relaying.options(url=line.url, lease_s=1.0, timeout_s=0.5), tmp_path) as frozen,
    ):
        await app.until_status("SENT", app.add())
        line.is_holding = True
        [event_id] = app.add()
        await line.until(1)
        await frozen.freeze(app.is_writable)
        async with relaying.running():
            await app.until_status("SENT", [event_id])
            settled = app.row(event_id, f"{UNCHANGED}, claim_token")
            line.is_holding = False
            frozen.send(signal.SIGCONT)
            assert await frozen.stop() == 0, frozen.log
        assert app.row(event_id, f"{UNCHANGED}, claim_token") == settled
    assert len(await relaying.events()) == 2


@pytest.mark.dec("DEC-03")
async def test_relay_frozen_inside_a_transaction_blocks_no_row(app: AppDatabase, relaying: Relaying) -> None:
    if app.kind is OutboxDatabase.SQLITE:
        pytest.skip("SQLite has one writer at a time")
    [event_id] = app.add()
    thaw, is_frozen = threading.Event(), threading.Event()
    transactions = OutboxTransactions(app.kind, "frozen")

    def freeze_after_claim() -> SqlTransaction[list[ClaimedRow]]:
        claimed = yield from transactions.claim(100, 1_000_000, 60.0)
        is_frozen.set()
        thaw.wait(DEADLINE_S)
        return claimed

    async def claim_and_freeze() -> None:
        kind = PostgresqlOutbox if app.kind is OutboxDatabase.POSTGRESQL else MariadbOutbox
        database = kind(parse_database(app.url), idle_s=1.0)
        try:
            assert await database.run(freeze_after_claim) == [], "its own claim was rolled back"
        finally:
            await database.close()

    frozen = asyncio.create_task(asyncio.to_thread(asyncio.run, claim_and_freeze()))
    try:
        await asyncio.to_thread(is_frozen.wait, DEADLINE_S)
        async with relaying.running():
            await app.until_status("SENT", [event_id])
    finally:
        thaw.set()
        await frozen


async def test_open_transaction_delays_no_other_and_is_published_after_its_commit(
    app: AppDatabase, relaying: Relaying
) -> None:
    if app.kind is OutboxDatabase.SQLITE:
        pytest.skip("SQLite has one writer at a time")
    connection = app.connect()
    try:
        late = app.insert(connection.cursor())
        others = app.add(20)
        async with relaying.running():
            await app.until_status("SENT", others)
            assert late not in await relaying.events()
            connection.commit()
            await app.until_status("SENT", [late])
    finally:
        connection.close()


async def test_a_rolled_back_row_is_never_published(app: AppDatabase, relaying: Relaying) -> None:
    connection = app.connect()
    app.insert(connection.cursor())
    connection.rollback()
    connection.close()
    async with relaying.running():
        committed = app.add()
        await app.until_status("SENT", committed)
    assert await relaying.events() == committed


@pytest.mark.fault(25, 26)
@pytest.mark.dec("DEC-04")
async def test_leases_and_due_times_use_the_clock_of_the_database(app: AppDatabase, relaying: Relaying) -> None:
    class WrongClock(SystemClock):
        def __init__(self, hours: int) -> None:
            self.offset = timedelta(hours=hours)

        def now(self) -> datetime:
            return datetime.now(UTC) + self.offset

    [leased] = app.add()
    database = open_database(relaying.options(), newest_sqlite())
    other = OutboxTransactions(app.kind, "other")
    await database.run(lambda: other.claim(100, 1_000_000, 600.0))
    await database.close()
    [backing_off] = app.add(status="FAILED", retries=1, due_at="2100-01-01 00:00:00")
    for hours in (1, -1):
        stopping = asyncio.Event()
        relay = RelayLoop(relaying.options(), clock=WrongClock(hours), sqlite=newest_sqlite())
        running = asyncio.create_task(relay.run(stopping))
        await app.until_status("SENT", app.add())
        stopping.set()
        await running
    assert app.row(leased, "status, claim_owner, claim_token") == ("PROCESSING", "other", 1)
    assert app.row(backing_off, "status, retries") == ("FAILED", 1)


@pytest.mark.fault(27)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])
async def test_a_restart_of_postgresql_under_load_loses_nothing(
    pg_server: PostgresServer, sqlite_url: str, tmp_path: Path, how: signal.Signals
) -> None:
    app = AppDatabase(pg_server.url())
    async with open_relaying(app, sqlite_url, tmp_path) as relaying:
        async with RelayProcess(relaying.options(batch_size=5), tmp_path) as relay:
            ids = app.add(100)
            await app.until(lambda: app.statuses().get("SENT", 0) > 10)
            await asyncio.to_thread(pg_server.stop, how)
            await asyncio.to_thread(pg_server.start)
            ids += app.add(20)
            await app.until_status("SENT", ids)
            assert relay.process is not None
            assert relay.process.returncode is None, relay.log
        assert sorted(await relaying.events()) == sorted(ids)


@pytest.mark.fault(29)
async def test_a_connection_cut_between_commit_and_its_answer_has_no_second_effect(
    empty_pg_url: str, sqlite_url: str, tmp_path: Path
) -> None:
    app = AppDatabase(empty_pg_url)
    async with open_relaying(app, sqlite_url, tmp_path) as relaying, pg_proxy(empty_pg_url) as proxy:
        options = {"database": proxy.url, "hint": False, "tasks": False, "health_log": False, "lease_s": 60.0}
        async with relaying.running(**options):
            await app.until_status("SENT", app.add())
            ids = app.add(30)
            proxy.commits_to_cut = 3
            await app.until(lambda: proxy.commits_cut == 3)
            await app.until_status("SENT", ids)
    assert app.query("select max(retries) from event_outbox") == [(0,)]


class ClaimProxy(PgProxy):
    """Cuts the connection at the COMMIT of claims."""

    claims_to_cut = 0

    def passed(self, data: bytes, is_begun: bool) -> None:
        if self.commits_cut < self.claims_to_cut and b"claim_token = claim_token + 1" in data:
            self.commits_to_cut = 1


@pytest.mark.fault(29)
async def test_rows_of_a_claim_whose_answer_was_lost_do_not_wait_for_their_lease(
    empty_pg_url: str, sqlite_url: str, tmp_path: Path
) -> None:
    app = AppDatabase(empty_pg_url)
    ids = app.add(3)
    async with open_relaying(app, sqlite_url, tmp_path) as relaying, pg_proxy(empty_pg_url, ClaimProxy) as proxy:
        proxy.claims_to_cut = 2
        async with relaying.running(database=proxy.url, hint=False, lease_s=600.0):
            await app.until_status("SENT", ids)
        assert await relaying.events() == sorted(ids)
    assert proxy.commits_cut == 2
    assert app.query("select min(claim_token), max(retries) from event_outbox") == [(3, 0)]


@pytest.mark.fault(30)
@pytest.mark.parametrize("state", ["40P01", "40001", "57014", "55P03", "53200"])
async def test_transient_error_of_postgresql_is_retried_and_never_counts_as_an_attempt(
    empty_pg_url: str, sqlite_url: str, tmp_path: Path, state: str
) -> None:
    app = AppDatabase(empty_pg_url)
    app.execute("create sequence failures")
    app.execute(
        "create function fail() returns trigger language plpgsql as $$ begin"
        f" if nextval('failures') <= 3 then raise exception 'made up' using errcode = '{state}'; end if;"
        " return new; end $$"
    )
    app.execute("create trigger fail before update on event_outbox for each statement execute function fail()")
    async with open_relaying(app, sqlite_url, tmp_path) as relaying, relaying.running():
        ids = app.add(3)
        await app.until_status("SENT", ids)
    assert app.query("select max(retries) from event_outbox") == [(0,)]
    assert app.query("select last_value from failures")[0][0] > 3


@pytest.mark.fault(30)
async def test_a_terminated_backend_is_replaced(empty_pg_url: str, sqlite_url: str, tmp_path: Path) -> None:
    app = AppDatabase(empty_pg_url)
    async with open_relaying(app, sqlite_url, tmp_path) as relaying, relaying.running():
        for _ in range(3):
            await app.until_status("SENT", app.add(2))
            app.query(
                "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
                " and datname = current_database()"
            )
        await app.until_status("SENT", app.add(2))
    assert app.query("select max(retries) from event_outbox") == [(0,)]


@pytest.mark.fault(33)
async def test_a_busy_sqlite_file_is_waited_for_and_then_named(tmp_path: Path, sqlite_url: str) -> None:
    app = AppDatabase(f"sqlite:///{tmp_path / 'application.db'}")
    ids = app.add(3)
    writer = app.connect()
    writer.execute("begin immediate")
    database = SqliteOutbox(app.target, newest_sqlite(), busy_s=0.2)
    transactions = OutboxTransactions(app.kind, "relay")
    with pytest.raises(Unavailable, match="write lock") as caught:
        await database.run(lambda: transactions.claim(100, 1_000_000, 60.0))
    assert caught.value.code == "outbox.busy"
    assert app.statuses() == {"PENDING": 3}, "no partial batch"
    writer.rollback()
    assert len(await database.run(lambda: transactions.claim(100, 1_000_000, 60.0))) == 3
    await database.close()
    app.execute("update event_outbox set lease_until = null")
    async with open_relaying(app, sqlite_url, tmp_path) as relaying, relaying.running():
        await app.until_status("SENT", ids)
    writer.close()
