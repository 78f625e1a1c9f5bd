"""The tables of the outbox: created, extended and printed, on PostgreSQL, SQLite and MariaDB."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from fieldpost.core.errors import ConfigError, Conflict
from fieldpost.outbox import Outbox
from fieldpost.outbox.tables import EVENT_OUTBOX, TABLES, OutboxDatabase
from support.commands import fieldpost_here
from support.outbox_kinds import Kind, Psycopg, PyMysql, Sqlite3

ORIGINAL = {
    "postgresql": "event_outbox_id uuid primary key default gen_random_uuid(), event_type varchar(100) not null,"
    " payload jsonb not null, status varchar(20) not null default 'PENDING', retries integer not null default 0,"
    " last_attempt_at timestamptz, created_at timestamptz not null default now(),"
    " updated_at timestamptz not null default now()",
    "sqlite": "event_outbox_id text primary key default (lower(hex(randomblob(16)))), event_type varchar(100) not null,"
    " payload json not null, status varchar(20) not null default 'PENDING', retries integer not null default 0,"
    " last_attempt_at timestamp, created_at timestamp not null default current_timestamp,"
    " updated_at timestamp not null default current_timestamp",
    "mariadb": "event_outbox_id char(36) primary key default (uuid()), event_type varchar(100) not null,"
    " payload json not null, status varchar(20) not null default 'PENDING', retries integer not null default 0,"
    " last_attempt_at datetime(6), created_at datetime(6) not null default current_timestamp(6),"
    " updated_at datetime(6) not null default current_timestamp(6)",
}
"""`event_outbox` as an application may already have it: the columns of EVT-12."""


@pytest.fixture(params=[OutboxDatabase.POSTGRESQL, OutboxDatabase.SQLITE, OutboxDatabase.MARIADB])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    match request.param:
        case OutboxDatabase.POSTGRESQL:
            return Psycopg(request.getfixturevalue("empty_pg_url"))
        case OutboxDatabase.SQLITE:
            return Sqlite3(f"sqlite:///{tmp_path / 'application.db'}")
        case _:
            return PyMysql(request.getfixturevalue("mariadb_url"))


def name_of(kind: Kind) -> str:
    return kind.url.partition(":")[0]


def columns(kind: Kind, table: str) -> set[str]:
    if isinstance(kind, Sqlite3):
        return {row[0] for row in kind.query(f"select name from pragma_table_info('{table}')")}
    where = "table_schema = database()" if isinstance(kind, PyMysql) else "true"
    query = f"select column_name from information_schema.columns where {where} and table_name = '{table}'"
    return {row[0] for row in kind.query(query)}


@pytest.mark.req("EVT-12", "EVT-13", "DEC-30", "DEC-56", "DEC-59")
def test_row_with_only_type_and_payload_gets_the_defaults(database: Kind) -> None:
    with database.transaction() as connection:
        Outbox.create_tables(connection)
        database.execute(connection, "insert into event_outbox (event_type, payload) values ('SERVICE_DOWN', '{}')")
    query = "select event_outbox_id, status, retries, last_attempt_at, published_at, claim_token from event_outbox"
    [(event_id, *rest)] = database.query(query)
    assert (len(str(event_id)), rest) == (36, ["PENDING", 0, None, None, 0])
    for table in TABLES:
        assert columns(database, table.name) == {column.name for column in table.columns}


@pytest.mark.req("EVT-12", "DEC-56", "DEC-85")
def test_existing_table_is_extended_and_its_rows_and_columns_stay(database: Kind) -> None:
    old = "insert into event_outbox (event_type, payload) values ('SERVICE_DOWN', '{\"a\":  1}')"
    with database.transaction() as connection:
        database.execute(connection, f"create table event_outbox ({ORIGINAL[name_of(database)]})")
        database.execute(connection, old)
        executed = Outbox.create_tables(connection)
        database.execute(connection, old)  # an application that does not know the new columns
        event_id = Outbox.add(connection, "SERVICE_DOWN", {"b": 2}, attributes={"service": "7"})
    assert any(one.startswith("alter table event_outbox add column order_key ") for one in executed)
    assert columns(database, "event_outbox") == {column.name for column in EVENT_OUTBOX.columns}
    assert len(database.events) == 3
    assert event_id in database.events
    assert database.query("select count(*) from event_outbox where status = 'PENDING' and due_at is not null") == [(3,)]


def test_creating_the_tables_twice_changes_nothing(database: Kind) -> None:
    for _ in range(2):
        with database.transaction() as connection:
            executed = Outbox.create_tables(connection)
            database.execute(connection, "insert into event_outbox (event_type, payload) values ('X', '{}')")
    assert not [one for one in executed if one.startswith(("alter", "create table"))]
    assert len(database.events) == 2


def test_table_of_the_same_name_and_another_purpose_is_a_conflict(database: Kind) -> None:
    with database.transaction() as connection:
        database.execute(connection, "create table event_outbox (id integer primary key)")
    with pytest.raises(Conflict, match="has no column created_at, event_outbox_id"), database.transaction() as found:
        Outbox.create_tables(found)
    assert columns(database, "event_outbox") == {"id"}
    assert columns(database, "background_tasks") == set()


def test_missing_table_is_named_with_the_way_to_create_it(database: Kind) -> None:
    with pytest.raises(ConfigError, match="event_outbox is missing") as raised, database.transaction() as connection:
        Outbox.add(connection, "SERVICE_DOWN", {})
    assert (raised.value.code, "create_tables" in str(raised.value.hint)) == ("outbox.no_table", True)


@pytest.mark.parametrize("options", [[], ["--extend"]])
def test_printed_ddl_is_accepted_by_the_database(database: Kind, options: list[str]) -> None:
    printed = fieldpost_here("outbox", "ddl", name_of(database), *options).stdout.decode()
    with database.transaction() as connection:
        if options:
            database.execute(connection, f"create table event_outbox ({ORIGINAL[name_of(database)]})")
        for statement in printed.split(";\n"):
            if statement.strip():
                database.execute(connection, statement)
        Outbox.add(connection, "SERVICE_DOWN", {})
    assert len(database.events) == 1


def test_rows_are_readable_by_sqlites_own_functions(tmp_path: Path) -> None:
    """Times in SQLite are texts in UTC that sort with those of CURRENT_TIMESTAMP."""
    connection: Any = sqlite3.connect(tmp_path / "application.db")
    Outbox.create_tables(connection)
    Outbox.add(connection, "SERVICE_DOWN", {})
    query = "select abs(strftime('%s', created_at) - strftime('%s', 'now')) < 60, length(created_at) from event_outbox"
    assert connection.execute(query).fetchall() == [(1, 26)]
    connection.close()
