"""Statements run on the driver's cursor, with the rows, transactions and errors of SQLAlchemy's own execution."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import asyncpg
import pytest
from sqlalchemy import Boolean, Connection, Text, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError
from sqlalchemy.util import await_only

from fieldpost.central.store.engine.column_types import Id, Json, Moment
from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.store.engine.postgres_store import PostgresStore
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.engine.store import Store

ID = "0198c8a0-0000-7000-8000-000000000001"
AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

_values = Statement(
    """
    select cast(:id as uuid) as id, {now} as at, cast('{"a": [1]}' as jsonb) as filed, true as is_so, u.name, 7
        as plain
    from {rows} order by u.name
    """,
    sqlite="""
    select :id as id, {now} as at, '{"a": [1]}' as filed, 1 as is_so, u.name, 7 as plain from {rows} order by u.name
    """,
    rows={"name": "text"},
    result={"id": Id, "at": Moment, "filed": Json, "is_so": Boolean, "name": Text},
)
_add = Statement("insert into notes (note) values (:note)")
_notes = Statement("select note from notes order by note")


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    opened = open_store(store_url)
    await opened.write(lambda conn: conn.exec_driver_sql("create table notes (note text primary key)").close())
    yield opened
    await opened.close()


async def test_rows_have_the_types_that_the_statement_declares(store: Store) -> None:
    def run(conn: Connection) -> list[dict[str, object]]:
        return [dict(row._mapping) for row in _values.run(conn, [("b",), ("a",)], id=ID, now=AT)]

    def run_by_sqlalchemy(conn: Connection) -> list[dict[str, object]]:
        event.listen(conn, "before_cursor_execute", see)
        return run(conn)

    seen: list[str] = []

    def see(_conn: object, _cursor: object, statement: str, *_: object) -> None:
        seen.append(statement)

    expected = [
        {"id": ID, "at": AT, "filed": {"a": [1]}, "is_so": True, "name": name, "plain": 7} for name in ("a", "b")
    ]
    assert await store.read(run) == expected
    assert await store.read(run) == expected, "also from the kept description of the columns"
    assert await store.read(run_by_sqlalchemy) == expected
    assert any("as plain" in statement for statement in seen), "by SQLAlchemy, since a listener wants to see it"


async def test_a_violated_constraint_is_sqlalchemys_error_and_undoes_the_transaction(store: Store) -> None:
    def add_twice(conn: Connection) -> None:
        _add.run(conn, note="one")
        _add.run(conn, note="one")

    with pytest.raises(IntegrityError, match="insert into notes"):
        await store.write(add_twice)

    def notes(conn: Connection) -> list[str]:
        return [row.note for row in _notes.run(conn)]

    assert await store.read(notes) == []
    await store.write(_add.run, note="two")
    assert await store.read(notes) == ["two"], "the connection is usable again"


async def test_a_single_statement_commits_on_its_own(store: Store) -> None:
    await store.write_one(_add.run, note="alone")
    assert [row.note for row in await store.read(_notes.run)] == ["alone"]


def _leave_open(conn: Connection) -> None:
    """As when memory runs out between the server's BEGIN and SQLAlchemy's note of it: no rollback is sent either."""
    driver = conn.connection.driver_connection
    assert driver is not None
    await_only(driver.execute("begin"))


@pytest.mark.fault(60)
@pytest.mark.parametrize("method", ["write", "write_one", "read", "read_one"])
async def test_a_connection_left_in_a_transaction_does_not_return_to_the_pool(pg_url: str, method: str) -> None:
    store = PostgresStore(make_url(pg_url), None, connections_max=1)
    try:
        await store.write(lambda conn: conn.exec_driver_sql("create table notes (note text primary key)").close())
        before = await store.read_one(_backend)
        await store.read_one(_leave_open)
        assert await getattr(store, method)(_backend) != before
    finally:
        await store.close()


def _backend(conn: Connection) -> int:
    return int(conn.exec_driver_sql("select pg_backend_pid()").scalar_one())


@pytest.mark.fault(60)
async def test_a_statement_inside_a_forgotten_transaction_is_stored_all_the_same(pg_url: str) -> None:
    store = open_store(pg_url)
    left_open = []

    def add(conn: Connection) -> None:
        if not left_open:
            left_open.append(True)
            _leave_open(conn)
        _add.run(conn, note="kept")

    await store.write(lambda conn: conn.exec_driver_sql("create table notes (note text primary key)").close())
    await store.write_one(add)
    visitor = await asyncpg.connect(pg_url)
    try:
        assert await visitor.fetchval("select note from notes") == "kept"
    finally:
        await visitor.close()
        await store.close()
