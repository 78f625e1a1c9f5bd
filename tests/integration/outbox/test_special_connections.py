"""Connections in particular states: pools, own codecs, sessions with pending work, BEGIN in an event, a pooler."""

import asyncio
import logging
import sqlite3
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, event, text
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.outbox import Outbox
from support.outbox_kinds import Kind, Psycopg, Sqlite3, rolled_back

DOWN = ("SERVICE_DOWN", {"service": 7})


@pytest.fixture
def postgresql(empty_pg_url: str) -> Kind:
    kind = Psycopg(empty_pg_url)
    with kind.transaction() as connection:
        Outbox.create_tables(connection)
    return kind


@pytest.fixture
def sqlite(tmp_path: Path) -> Kind:
    kind = Sqlite3(f"sqlite:///{tmp_path / 'application.db'}")
    with kind.transaction() as connection:
        Outbox.create_tables(connection)
    return kind


@pytest.mark.req("DEC-85")
def test_default_sqlite_connection_is_accepted_before_its_first_statement(sqlite: Kind) -> None:
    connection = sqlite3.connect(sqlite.url.removeprefix("sqlite:///"))
    event_id = Outbox.add(connection, *DOWN)
    assert sqlite.events == set(), "not committed"
    connection.commit()
    connection.close()
    assert sqlite.events == {event_id}


@pytest.mark.req("DEC-85")
def test_sqlite_connection_in_autocommit_is_accepted_after_begin(sqlite: Kind) -> None:
    with sqlite.autocommit() as connection:
        connection.execute("begin")
        Outbox.add(connection, *DOWN)
        connection.execute("rollback")
    assert sqlite.events == set()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has the argument autocommit from Python 3.12 on")
@pytest.mark.req("DEC-85")
@pytest.mark.parametrize("autocommit", [True, False])
def test_sqlite_connection_with_an_autocommit_argument(sqlite: Kind, autocommit: bool) -> None:
    options: dict[str, Any] = {"autocommit": autocommit}
    connection = sqlite3.connect(sqlite.url.removeprefix("sqlite:///"), **options)
    if autocommit:
        with pytest.raises(Conflict, match="autocommit"):
            Outbox.add(connection, *DOWN)
        connection.execute("begin")
    Outbox.add(connection, *DOWN)
    connection.execute("rollback")
    connection.close()
    assert sqlite.events == set()


@pytest.mark.req("DEC-85")
@pytest.mark.parametrize("is_pipeline", [False, True])
def test_psycopg_in_autocommit_is_accepted_only_inside_transaction(postgresql: Kind, is_pipeline: bool) -> None:
    with psycopg.connect(postgresql.url, autocommit=True) as connection:
        with connection.transaction():
            if is_pipeline:
                with connection.pipeline():
                    ids = {Outbox.add(connection, *DOWN) for _ in range(3)}
            else:
                ids = {Outbox.add(connection, *DOWN) for _ in range(3)}
        with pytest.raises(Conflict, match="autocommit"):
            Outbox.add(connection, *DOWN)
    assert postgresql.events == ids


@pytest.mark.parametrize("recipe", ["begin in an event", "no begin at all"])
def test_sqlalchemy_on_sqlite_with_own_transaction_control(sqlite: Kind, recipe: str) -> None:
    """The documented recipe turns sqlite3's transactions off and executes BEGIN in an event of SQLAlchemy."""
    engine = create_engine(sqlite.url, connect_args={"isolation_level": None})
    if recipe == "begin in an event":
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("begin"))
        with engine.connect() as connection:
            Outbox.add(connection, *DOWN)
            connection.rollback()
            event_id = Outbox.add(connection, *DOWN)
            connection.commit()
        assert sqlite.events == {event_id}
    else:
        with engine.connect() as connection:
            with pytest.raises(Conflict, match="autocommit"):
                Outbox.add(connection, *DOWN)
            assert not connection.in_transaction(), "left as it was"
    engine.dispose()


class Base(DeclarativeBase):
    pass


class Service(Base):
    __tablename__ = "services"
    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.mark.parametrize("make", [sessionmaker, lambda engine: scoped_session(sessionmaker(engine))])
def test_session_flushes_nothing_for_an_event(postgresql: Kind, make: Any) -> None:
    engine = create_engine(postgresql.url.replace("postgresql:", "postgresql+psycopg:"))
    Base.metadata.create_all(engine)
    session = make(engine)
    session = session() if isinstance(session, sessionmaker) else session
    service = Service(id=1)
    session.add(service)
    event_id = Outbox.add(session, *DOWN)
    assert service in session.new, "not flushed"
    session.commit()
    session.close()
    assert postgresql.events == {event_id}
    assert postgresql.query("select id from services") == [(1,)]
    engine.dispose()


def test_session_after_a_failed_flush_is_a_failed_transaction(sqlite: Kind) -> None:
    engine = create_engine(sqlite.url)
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.execute(text("insert into services (id) values (1)"))
        session.add(Service(id=1))
        with pytest.raises(Exception, match="UNIQUE"):
            session.flush()
        with pytest.raises(Conflict) as raised:
            Outbox.add(session, *DOWN)
    assert raised.value.code == "outbox.failed_transaction"
    engine.dispose()


@pytest.mark.bad_input(44)
def test_block_whose_transaction_was_rolled_back_is_rejected(sqlite: Kind) -> None:
    engine = create_engine(sqlite.url)
    with engine.begin() as connection:
        Outbox.add(connection, *DOWN)
        connection.rollback()
        with pytest.raises(Conflict) as raised:
            Outbox.add(connection, *DOWN)
    assert raised.value.code == "outbox.ended_transaction"
    with Session(engine) as session, session.begin():
        Outbox.add(session, *DOWN)
        session.rollback()
        with pytest.raises(Conflict):
            Outbox.add(session, *DOWN)
    engine.dispose()
    assert sqlite.events == set()


@pytest.mark.bad_input(44)
async def test_asynchronous_block_whose_transaction_was_rolled_back_is_rejected(postgresql: Kind) -> None:
    engine = create_async_engine(postgresql.url.replace("postgresql:", "postgresql+asyncpg:"))
    async with engine.begin() as connection:
        await Outbox.add_async(connection, *DOWN)
        await connection.rollback()
        with pytest.raises(Conflict) as raised:
            await Outbox.add_async(connection, *DOWN)
    assert raised.value.code == "outbox.ended_transaction"
    await engine.dispose()
    assert postgresql.events == set()


def test_session_without_begin_or_default_database_is_named(sqlite: Kind) -> None:
    engine = create_engine(sqlite.url)
    for session in (Session(engine, autobegin=False), Session()):
        with session, pytest.raises(Conflict, match="the session gives no connection") as raised:
            Outbox.add(session, *DOWN)
        assert raised.value.code == "outbox.session"
    engine.dispose()


async def test_asynchronous_scoped_session_is_a_session(postgresql: Kind) -> None:
    engine = create_async_engine(postgresql.url.replace("postgresql:", "postgresql+asyncpg:"))
    session = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
    event_id = await Outbox.add_async(session, *DOWN)
    await session.commit()
    await session.remove()
    await engine.dispose()
    assert postgresql.events == {event_id}


@pytest.mark.parametrize("size", [1, 3])
def test_pool_lends_connections_without_a_trace_of_the_last_user(postgresql: Kind, size: int) -> None:
    engine = create_engine(postgresql.url.replace("postgresql:", "postgresql+psycopg:"), pool_size=size, max_overflow=0)
    things = Table("things", MetaData(), Column("id", Integer, primary_key=True))
    things.create(engine)
    kept = set()
    for turn in range(6):
        with engine.connect() as connection:
            connection.execute(things.insert().values(id=turn))
            event_id = Outbox.add(connection, *DOWN)
            if turn % 2:
                connection.commit()
                kept.add(event_id)
    assert postgresql.events == kept
    engine.dispose()


async def test_connection_returned_to_its_pool_is_closed(postgresql: Kind) -> None:
    async with asyncpg.create_pool(postgresql.url, min_size=1, max_size=1) as pool:
        async with pool.acquire() as connection, connection.transaction():
            event_id = await Outbox.add_async(connection, *DOWN)
        with pytest.raises(Conflict) as raised:
            await Outbox.add_async(connection, *DOWN)
        assert raised.value.code == "outbox.closed"
        async with pool.acquire() as other:
            assert not other.is_in_transaction()
    assert postgresql.events == {event_id}


async def test_own_codecs_of_an_application_change_nothing(postgresql: Kind) -> None:
    import json

    connection = await asyncpg.connect(postgresql.url)
    for name in ("json", "jsonb"):
        await connection.set_type_codec(name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    async with connection.transaction():
        await Outbox.add_async(connection, *DOWN, attributes={"service": "7"})
    assert await connection.fetchval("select payload from event_outbox") == {"service": 7}
    await connection.close()


def test_row_factories_and_cursor_classes_of_an_application_change_nothing(sqlite: Kind, empty_pg_url: str) -> None:
    connection = sqlite3.connect(":memory:")
    connection.row_factory = lambda cursor, row: {"found": row}
    assert Outbox.create_tables(connection)
    assert not [one for one in Outbox.create_tables(connection) if one.startswith("create table")]
    connection.close()
    from psycopg.rows import dict_row

    with psycopg.connect(empty_pg_url, row_factory=dict_row) as found:
        Outbox.create_tables(found)
        assert not [one for one in Outbox.create_tables(found) if one.startswith("create table")]


@pytest.mark.req("DEC-84")
def test_created_at_is_the_clock_at_the_insert_and_not_at_the_start_of_the_transaction(postgresql: Kind) -> None:
    with postgresql.transaction() as early, postgresql.transaction() as late:
        early.execute("select now()")
        late_id = Outbox.add(late, *DOWN)
        early_id = Outbox.add(early, *DOWN)
    found = postgresql.query("select event_outbox_id::text from event_outbox order by created_at")
    assert found == [(late_id,), (early_id,)]


async def test_committed_events_wake_listeners_and_a_dropped_trigger_stays_away(postgresql: Kind) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    listener = await asyncpg.connect(postgresql.url)
    await listener.add_listener("event_outbox", lambda *_: heard.put_nowait("hint"))
    with rolled_back(postgresql.transaction()) as connection:
        Outbox.add(connection, *DOWN)
    await listener.execute("select 1")
    assert heard.empty()
    with postgresql.transaction() as connection:
        Outbox.add(connection, *DOWN)
        Outbox.add(connection, *DOWN)
    assert await asyncio.wait_for(heard.get(), 10) == "hint"
    await listener.execute("drop trigger event_outbox_hint on event_outbox")
    with postgresql.transaction() as connection:
        assert not [one for one in Outbox.create_tables(connection) if "trigger" in one]
        Outbox.add(connection, *DOWN)
    await listener.execute("select 1")
    assert heard.empty(), "one hint for a transaction, and none without the trigger"
    await listener.close()


def test_delivery_time_is_stored_in_utc(kind: Kind) -> None:
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
    zoned = moment.astimezone(tz=None)
    with kind.transaction() as connection:
        kind.add(connection, "AT", {}, deliver_after=zoned)
        kind.add(connection, "AFTER", {}, deliver_after=timedelta(days=2, milliseconds=5))
        kind.add(connection, "NOW", {})
    found = dict(kind.query("select event_type, due_at from event_outbox"))
    times = {
        name: value if isinstance(value, datetime) else datetime.fromisoformat(value) for name, value in found.items()
    }
    times = {name: value if value.tzinfo else value.replace(tzinfo=UTC) for name, value in times.items()}
    assert times["AT"] == moment
    assert abs(times["AFTER"] - moment) < timedelta(minutes=1)
    assert abs(times["NOW"] - datetime.now(UTC)) < timedelta(minutes=1)


def test_payload_keeps_its_text_on_every_database(kind: Kind) -> None:
    payload = {"z": 1, "a": "Größe 💡", "twice": [1.0, 2], "quote": 'it\'s \\ "so" %s ? :x $1'}
    with kind.transaction() as connection:
        kind.add(connection, "X", payload)
    [(text,)] = kind.query("select cast(payload as char(4000)) from event_outbox")
    assert text.rstrip() == '{"z":1,"a":"Größe 💡","twice":[1.0,2],"quote":"it\'s \\\\ \\"so\\" %s ? :x $1"}'


@pytest.mark.parametrize(
    ("connection", "advice"),
    [
        (object(), "accepted: connections and sessions of SQLAlchemy"),
        (None, "is not a connection"),
        (create_engine("sqlite://"), "pass a connection of it"),
        (sqlite3.connect(":memory:").cursor(), "pass the connection, not a cursor"),
    ],
)
def test_invalid_connection_is_rejected_with_advice(connection: Any, advice: str) -> None:
    with pytest.raises(InvalidInput, match=advice) as raised:
        Outbox.add(connection, *DOWN)
    assert (raised.value.code, raised.value.field) == ("outbox.connection", "connection")


async def test_sync_and_async_connections_are_not_mixed_up(postgresql: Kind) -> None:
    connection = await asyncpg.connect(postgresql.url)
    with pytest.raises(InvalidInput, match=r"use `await Outbox\.add_async"):
        Outbox.add(connection, *DOWN)
    await connection.close()
    with pytest.raises(InvalidInput, match=r"use `Outbox.add\(…\)`"):
        await Outbox.add_async(sqlite3.connect(":memory:"), *DOWN)


@pytest.mark.bad_input(42)
def test_log_names_the_event_and_never_its_payload(sqlite: Kind, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), sqlite.transaction() as connection:
        event_id = Outbox.add(connection, "SERVICE_DOWN", {"password": "hunter2"}, attributes={"service": "hunter2"})
    assert caplog.messages == [f"event.added event_id={event_id} event_type=SERVICE_DOWN"]


async def test_no_setting_or_prepared_statement_of_the_session_is_needed(postgresql: Kind) -> None:
    """DISCARD ALL removes them, as a pooler may between two transactions."""
    engine = create_async_engine(
        postgresql.url.replace("postgresql:", "postgresql+asyncpg:"),
        poolclass=NullPool,
        connect_args={"statement_cache_size": 0},
    )
    ids = set()
    async with engine.connect() as connection:
        for _ in range(4):
            ids.add(await Outbox.add_async(connection, *DOWN))
            await connection.commit()
            driver: Any = (await connection.get_raw_connection()).driver_connection
            await driver.execute("discard all")
    await engine.dispose()
    assert postgresql.events == ids
