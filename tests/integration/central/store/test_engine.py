"""Transactions on both databases: durable, together where that is cheaper, and honest about what failed."""

import asyncio
import os
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event, make_url, text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.util import await_only

from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.store.engine.postgres_store import TRIES_MAX
from fieldpost.central.store.engine.sqlite_store import sqlite_engine, sqlite_module
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.schema.migrate import upgrade_async
from fieldpost.core.errors import Unavailable
from support.pg_proxy import pg_proxy

DEADLINE_S = 20


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    opened = open_store(store_url)
    await prepare(opened)
    yield opened
    await opened.close()


@pytest.fixture
async def embedded(sqlite_url: str) -> AsyncIterator[Store]:
    opened = open_store(sqlite_url)
    await prepare(opened)
    yield opened
    await opened.close()


async def prepare(store: Store) -> None:
    """A table of the test's own, and one whose violations show only at COMMIT."""

    def make(conn: Connection) -> None:
        conn.exec_driver_sql("create table notes (note text primary key)")
        conn.exec_driver_sql("create table strict (note text references notes deferrable initially deferred)")

    await store.write(make)


def note(conn: Connection, text_: str) -> str:
    conn.execute(text("insert into notes values (:note)"), {"note": text_})
    return text_


def fail_at_commit(conn: Connection) -> None:
    conn.exec_driver_sql("insert into strict values ('nobody wrote this')")


async def notes(store: Store) -> list[str]:
    def look(conn: Connection) -> list[str]:
        return list(conn.execute(text("select note from notes order by note")).scalars())

    return await store.read(look)


class Busy:
    """Keeps SQLite's writer thread busy, so that what comes next waits together."""

    def __init__(self, store: Store) -> None:
        self._let_go = threading.Event()
        self._began = threading.Event()
        self._task = asyncio.create_task(store.write(self._work))

    async def began(self) -> None:
        await asyncio.to_thread(self._began.wait, DEADLINE_S)

    async def end(self) -> None:
        self._let_go.set()
        await self._task

    def _work(self, _: Connection) -> None:
        self._began.set()
        assert self._let_go.wait(DEADLINE_S)


async def waiting_together(store: Store, *functions: Callable[..., Any]) -> list[Any]:
    """The results, or exceptions, of functions that the writer finds waiting at once."""
    busy = Busy(store)
    await busy.began()
    tasks = [asyncio.create_task(store.write(function)) for function in functions]
    await asyncio.sleep(0)
    await busy.end()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_committed_rows_are_visible_to_every_connection(store: Store, store_url: str) -> None:
    assert await store.write(note, "one") == "one"
    other = open_store(store_url)
    assert await notes(other) == ["one"]
    await other.close()


@pytest.mark.req("DEC-02")
async def test_every_connection_commits_durably(store: Store) -> None:
    """The server of the tests itself says otherwise: its default is off."""

    def look(conn: Connection) -> tuple[Any, ...]:
        if conn.dialect.name == "sqlite":
            names = ("journal_mode", "synchronous", "foreign_keys")
            return tuple(conn.exec_driver_sql(f"pragma {name}").scalar() for name in names)
        return (conn.exec_driver_sql("show synchronous_commit").scalar(),)

    expected = ("wal", 2, 1) if store.url.startswith("sqlite") else ("on",)
    assert await store.write(look) == expected
    found = await asyncio.gather(*(store.read(look) for _ in range(20)))
    assert set(found) == {expected}


async def test_a_reader_cannot_write(store: Store) -> None:
    with pytest.raises(Unavailable):
        await store.read(note, "one")
    assert await notes(store) == []
    await store.write(note, "two")
    assert await notes(store) == ["two"]


async def test_failed_write_leaves_nothing(store: Store) -> None:
    def write_and_fail(conn: Connection) -> None:
        note(conn, "half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await store.write(write_and_fail)
    with pytest.raises(IntegrityError):
        await store.write(lambda conn: (note(conn, "twice"), note(conn, "twice")))
    assert await notes(store) == []


@pytest.mark.req("DEC-02")
async def test_a_commit_that_fails_fails_the_write(store: Store) -> None:
    def write_and_fail(conn: Connection) -> None:
        note(conn, "half")
        fail_at_commit(conn)

    with pytest.raises(IntegrityError):
        await store.write(write_and_fail)
    assert await notes(store) == []
    await store.write(note, "whole")
    assert await notes(store) == ["whole"]


@pytest.mark.req("DEC-02")
async def test_waiting_writes_are_committed_together(embedded: Store, sqlite_url: str) -> None:
    file = Path(sqlite_url.removeprefix("sqlite:///") + "-wal")
    before = commits_in(file)
    functions = [lambda conn, n=n: note(conn, f"{n:03}") for n in range(100)]
    assert await waiting_together(embedded, *functions) == [f"{n:03}" for n in range(100)]
    assert commits_in(file) - before <= 2, "one for what waited, and at most one for what kept the writer busy"
    assert len(await notes(embedded)) == 100


@pytest.mark.req("ING-03")
async def test_write_returns_only_after_its_commit(embedded: Store) -> None:
    ran, at_commit, go_on = threading.Event(), threading.Event(), threading.Event()

    def work(_conn: Connection) -> int:
        ran.set()
        return 7

    def hold(_conn: Connection) -> None:
        if ran.is_set():
            at_commit.set()
            go_on.wait(30)

    event.listen(embedded._writer, "commit", hold)  # type: ignore[attr-defined]
    writing = asyncio.create_task(embedded.write(work))
    try:
        assert await asyncio.to_thread(at_commit.wait, 30)
        await asyncio.wait([writing], timeout=0.2)
        assert not writing.done()
    finally:
        go_on.set()
    assert await writing == 7


async def test_failed_write_does_not_affect_writes_that_waited_with_it(embedded: Store) -> None:
    def write_and_fail(conn: Connection) -> None:
        note(conn, "half")
        raise ValueError("no")

    results = await waiting_together(
        embedded, lambda conn: note(conn, "a"), write_and_fail, lambda conn: note(conn, "b")
    )
    assert [r if isinstance(r, str) else type(r) for r in results] == ["a", ValueError, "b"]
    assert await notes(embedded) == ["a", "b"]


@pytest.mark.req("DEC-02")
async def test_a_failed_commit_fails_all_that_waited_together(embedded: Store) -> None:
    results = await waiting_together(
        embedded, lambda conn: note(conn, "a"), fail_at_commit, lambda conn: note(conn, "b")
    )
    assert [type(result) for result in results] == [IntegrityError] * 3
    assert await notes(embedded) == []
    await embedded.write(note, "later")
    assert await notes(embedded) == ["later"]


async def test_cancelled_waiting_write_is_not_executed(embedded: Store) -> None:
    busy = Busy(embedded)
    await busy.began()
    given_up = asyncio.create_task(embedded.write(note, "given up"))
    kept = asyncio.create_task(embedded.write(note, "kept"))
    await asyncio.sleep(0)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    await busy.end()
    await kept
    assert await notes(embedded) == ["kept"]


async def test_closing_finishes_waiting_writes(store_url: str) -> None:
    store = open_store(store_url)
    await prepare(store)
    written = asyncio.gather(*(store.write(note, str(number)) for number in range(5)))
    await asyncio.sleep(0)
    if store.url.startswith("sqlite"):
        await store.close()
        await written
    else:
        await written
        await store.close()
    again = open_store(store_url)
    assert len(await notes(again)) == 5
    await again.close()


HOLD_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
connection.execute("COMMIT")
"""


@pytest.mark.fault(33)
async def test_a_database_locked_by_another_process_is_waited_for(embedded: Store, sqlite_url: str) -> None:
    with lock_holder(sqlite_url) as holder:
        writing = asyncio.create_task(embedded.write(note, "one"))
        done, _ = await asyncio.wait([writing], timeout=0.3)
        assert not done
        holder.communicate()
        async with asyncio.timeout(DEADLINE_S):
            assert await writing == "one"


@pytest.mark.fault(33)
async def test_database_that_stays_locked_raises_a_typed_error_for_all_waiters(
    embedded: Store, sqlite_url: str
) -> None:
    await embedded.write(lambda conn: conn.exec_driver_sql("pragma busy_timeout = 50").close())
    with lock_holder(sqlite_url) as holder:
        async with asyncio.timeout(DEADLINE_S):
            results = await asyncio.gather(
                *(embedded.write(note, str(number)) for number in range(5)), return_exceptions=True
            )
        assert [type(result) for result in results] == [Unavailable] * 5
        assert {result.code for result in results if isinstance(result, Unavailable)} == {"store.unavailable"}
        assert "locked" in str(results[0])
        holder.communicate()
    assert await notes(embedded) == []
    await embedded.write(note, "later")
    assert await notes(embedded) == ["later"]


@pytest.mark.fault(66)
async def test_a_full_embedded_database_is_unavailable_until_there_is_room(embedded: Store) -> None:
    await embedded.write(lambda conn: conn.exec_driver_sql("pragma max_page_count = 1").close())
    long = "x" * 100_000
    results = await waiting_together(embedded, *(lambda conn, n=n: note(conn, f"{n}{long}") for n in range(3)))
    assert [type(result) for result in results] == [Unavailable] * 3
    assert "full" in str(results[0])
    await embedded.write(lambda conn: conn.exec_driver_sql("pragma max_page_count = 1000000").close())
    assert await notes(embedded) == []
    await embedded.write(note, long)
    assert await notes(embedded) == [long]


@pytest.mark.fault(66)
async def test_an_embedded_database_that_turned_read_only_is_unavailable(embedded: Store) -> None:
    await embedded.write(lambda conn: conn.exec_driver_sql("pragma query_only = 1").close())
    with pytest.raises(Unavailable, match="readonly"):
        await embedded.write(note, "one")
    # That was the connection's own: the next batch has a fresh one.
    await embedded.write(note, "two")
    assert await notes(embedded) == ["two"]


def raising(code: str, times: int, ran: list[str]) -> Callable[[Connection], str]:
    """A transaction in which the database raises this error at its first runs."""

    def work(conn: Connection) -> str:
        ran.append(code)
        note(conn, code)
        if len(ran) <= times:
            conn.exec_driver_sql(f"do $$ begin raise exception 'planted' using errcode = '{code}'; end $$")
        return "done"

    return work


PASSING = {
    "40P01": "deadlock",
    "40001": "serialization",
    "57014": "statement time-out",
    "57P01": "shutdown",
    "25P03": "idle in transaction",
}


@pytest.mark.fault(30)
@pytest.mark.parametrize("code", PASSING, ids=PASSING.values())
async def test_transient_error_of_the_database_is_retried(pg_url: str, code: str) -> None:
    store = open_store(pg_url)
    await prepare(store)
    ran: list[str] = []
    assert await store.write(raising(code, 1, ran)) == "done"
    assert len(ran) == 2
    assert await notes(store) == [code]
    await store.close()


@pytest.mark.fault(30)
async def test_lasting_error_of_the_database_is_unavailable_after_a_few_tries(pg_url: str) -> None:
    store = open_store(pg_url)
    await prepare(store)
    ran: list[str] = []
    with pytest.raises(Unavailable) as caught:
        await store.write(raising("40001", 1000, ran))
    assert len(ran) == TRIES_MAX
    assert caught.value.code == "store.unavailable"
    assert "planted" in caught.value.message
    assert await notes(store) == []
    await store.close()


@pytest.mark.fault(30)
async def test_a_real_deadlock_costs_neither_side_its_transaction(pg_url: str) -> None:
    store = open_store(pg_url)
    await prepare(store)
    met = asyncio.Barrier(2)
    ran: list[str] = []

    def work(conn: Connection, name: str, first: int, second: int) -> None:
        is_first_run = name not in ran
        ran.append(name)
        conn.exec_driver_sql(f"select pg_advisory_xact_lock({first})")
        if is_first_run:
            await_only(met.wait())
        conn.exec_driver_sql(f"select pg_advisory_xact_lock({second})")
        note(conn, name)

    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(store.write(work, "a", 1, 2), store.write(work, "b", 2, 1))
    assert len(ran) == 3, "the one the database chose to fail ran twice"
    assert await notes(store) == ["a", "b"]
    await store.close()


@pytest.mark.fault(66)
@pytest.mark.parametrize("code", ["25006", "53100", "53300"], ids=["read-only", "disk full", "too many connections"])
async def test_server_that_accepts_nothing_is_unavailable_at_once(pg_url: str, code: str) -> None:
    store = open_store(pg_url)
    await prepare(store)
    ran: list[str] = []
    with pytest.raises(Unavailable) as caught:
        await store.write(raising(code, 1, ran))
    assert len(ran) == 1, "trying again at once would only add to its troubles"
    assert caught.value.code == "store.unavailable"
    assert await store.write(raising(code, 1, ran)) == "done"
    await store.close()


async def test_programming_error_is_not_reported_as_unavailable(store: Store) -> None:
    with pytest.raises(DBAPIError):
        await store.write(lambda conn: conn.exec_driver_sql("select from nowhere at all"))


@pytest.mark.fault(29)
async def test_a_commit_whose_answer_is_lost_is_run_again(pg_url: str) -> None:
    async with pg_proxy(pg_url) as proxy:
        store = open_store(proxy.url)
        await prepare(store)
        ran: list[int] = []

        def add_if_absent(conn: Connection) -> bool:
            ran.append(1)
            added = conn.exec_driver_sql("insert into notes values ('one') on conflict do nothing").rowcount
            return added == 1

        proxy.commits_to_cut = 1
        assert not await store.write(add_if_absent), "the second run finds what the first has done"
        assert (len(ran), proxy.commits_cut) == (2, 1)
        assert await notes(store) == ["one"]
        await store.close()


@pytest.mark.fault(27)
async def test_unreachable_server_is_unavailable(tmp_path: Path) -> None:
    store = open_store(f"postgresql://postgres@/x?host={tmp_path}")
    with pytest.raises(Unavailable):
        await store.write(note, "one")
    await store.close()


class lock_holder(subprocess.Popen[str]):
    """Another process that holds the write lock of the file until its standard input ends."""

    def __init__(self, url: str) -> None:
        command = [sys.executable, "-c", HOLD_LOCK, url.removeprefix("sqlite:///")]
        super().__init__(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.stdout is not None
        assert self.stdout.readline() == "held\n"


def commits_in(wal: Path) -> int:
    """How many commits the write-ahead log holds: a frame that ends one says how large the database is after it."""
    content = wal.read_bytes()
    page_size = struct.unpack(">I", content[8:12])[0]
    salts = content[16:24]
    frames = (content[at : at + 24] for at in range(32, len(content) - 24, 24 + page_size))
    return sum(frame[8:16] == salts and frame[4:8] != bytes(4) for frame in frames)


@pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX")
async def test_new_embedded_database_is_private_and_an_existing_one_keeps_its_mode(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        url = f"sqlite:///{tmp_path / 'new' / 'central.db'}"
        await upgrade_async(url)
        assert _modes(tmp_path / "new") == {0o600}
        (tmp_path / "new" / "central.db").chmod(0o640)
        await upgrade_async(url)
        assert _modes(tmp_path / "new") == {0o640}
    finally:
        os.umask(before)


def _modes(folder: Path) -> set[int]:
    return {file.stat().st_mode & 0o777 for file in folder.glob("central.db*") if not file.name.endswith(".lock")}


def test_a_new_file_that_another_process_writes_is_switched_to_its_log_when_it_can_be(tmp_path: Path) -> None:
    """SQLite refuses the switch without waiting then, as when two processes switch a new file at the same time."""
    file = tmp_path / "central.db"
    other = sqlite_module.connect(str(file), isolation_level=None, check_same_thread=False)
    other.execute("create table t (x)")
    other.execute("begin immediate")
    other.execute("insert into t values (1)")
    with pytest.raises(OperationalError, match="locked"):
        sqlite_engine(make_url(f"sqlite:///{file}"), busy_s=0.05).connect()
    ending = threading.Timer(0.2, other.close)
    ending.start()
    engine = sqlite_engine(make_url(f"sqlite:///{file}"))
    with engine.connect() as conn:
        assert conn.exec_driver_sql("pragma journal_mode").scalar_one() == "wal"
    engine.dispose()
    ending.join()


@pytest.mark.threat(23)
@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select 1 from missing where body = :body", "missing"),
        ("insert into list_targets (list_name, address) values (:body, null)", "address"),
        ("insert into list_targets (list_name, address) values (:body, 'a@example.org')", "(?i)foreign key"),
        ("select json(:body)", "(?i)json"),
        # SQLite takes any text for a number, and fails at the second value.
        ("select cast(:body as int), {fail}", r"argument \$1\n|malformed"),
        ("select cast(cast(:body as text) as int), {fail}", r"type integer\n|malformed"),
    ],
)
async def test_errors_of_the_database_hide_the_values_of_a_statement(store_url: str, sql: str, said: str) -> None:
    body = "".join(["confi", "dential"])  # a traceback has the lines of this function too

    def fail(conn: Connection) -> None:
        fails = "json('{')" if conn.dialect.name == "sqlite" else "1"
        conn.execute(text(sql.format(fail=fails)), {"body": body})

    store = open_store(store_url)
    try:
        with pytest.raises(DBAPIError, match=said) as caught:
            await store.write(fail)
        assert body not in "".join(traceback.format_exception(caught.value))
    finally:
        await store.close()
