"""Writes to real databases: what each says, what becomes of the write, and what is in the table afterwards."""

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest
import trustme

from fieldpost.clock import SystemClock
from fieldpost.core.errors import ConfigError
from fieldpost.core.sites.forwarding import CarrierAnswer, NotNow, Refused, Taken
from fieldpost.core.sites.message import Category, Message
from fieldpost.site.carriers import postgresql, sqlite
from fieldpost.site.carriers.database import DatabaseCarrier
from fieldpost.site.carriers.payloads import DatabaseWrite, Scalar, encode
from fieldpost.site.carriers.write_arguments import check_write
from fieldpost.site.config.database import Database
from support.databases import PostgresDatabases
from support.pg_proxy import pg_proxy
from support.pg_tls import pg_tls
from support.ports import closed_port

STATEMENTS = {
    "count": "INSERT INTO counts (call_id, unit, n) VALUES (:call_id, :unit, :n)",
    "count_once": "INSERT INTO counts (call_id, unit, n) VALUES (:call_id, :unit, :n) ON CONFLICT DO NOTHING",
}
TABLE = "CREATE TABLE counts (call_id TEXT PRIMARY KEY, unit TEXT NOT NULL, n INTEGER NOT NULL CHECK (n >= 0))"
VALUES: dict[str, Scalar] = {"unit": "press ü", "n": 3}


class World:
    """One database, its definition and a carrier."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.carrier = DatabaseCarrier(SystemClock())
        self.changes: dict[str, Any] = {}

    def definition(self, **changes: Any) -> Database:
        given = {"name": "plant", "folder": self.folder, "url": self.url, "timeout_s": 30.0, "statements": STATEMENTS}
        return Database(**(given | self.changes | changes))

    async def write(
        self,
        statement: str = "count",
        parameters: dict[str, Scalar] | None = None,
        number: int = 1,
        **changes: Any,
    ) -> CarrierAnswer:
        definition = self.definition(**changes)
        write = check_write(definition, statement, VALUES if parameters is None else parameters)
        return await self.carrier.attempt(message(write, number), definition)

    @property
    def file(self) -> Path:
        return Path(self.url.removeprefix("sqlite:///"))

    async def rows(self, sql: str = "SELECT call_id, unit, n FROM counts") -> list[tuple[Any, ...]]:
        return await self.run(sql)

    async def run(self, sql: str) -> list[tuple[Any, ...]]:
        if self.url.startswith("sqlite"):
            connection = apsw.Connection(str(self.file))
            try:
                return list(connection.execute(sql))
            finally:
                connection.close()
        plain = await asyncpg.connect(self.url)
        try:
            return [tuple(row) for row in await plain.fetch(sql)]
        finally:
            await plain.close()


def operation(number: int = 1) -> str:
    return f"01978d5e-0000-7000-8000-{number:012}"


def message(write: DatabaseWrite, number: int = 1) -> Message:
    return Message(
        sequence=number,
        message_id=operation(number),
        category=Category.DATABASE_WRITE,
        target="plant",
        payload=encode(write),
        created_at=datetime(2026, 11, 15, tzinfo=UTC),
    )


def damage(path: Path) -> None:
    path.write_bytes(b"this is no database, and is long enough to be looked at as one" * 100)


@pytest.fixture(scope="module")
def shared_url(pg_databases: PostgresDatabases) -> Iterator[str]:
    """One database for all tests of this module, since making one takes longer than most of them."""
    with pg_databases.fresh(is_empty=True) as url:
        yield url


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[World]:
    made = World(f"sqlite:///{tmp_path / 'plant.db'}", tmp_path)
    await made.run(TABLE)
    yield made
    await made.carrier.close()


@pytest.fixture
async def server(shared_url: str, tmp_path: Path) -> AsyncIterator[World]:
    made = World(shared_url, tmp_path)
    await made.run("DROP SCHEMA public CASCADE")
    await made.run("CREATE SCHEMA public")
    await made.run(TABLE)
    yield made
    await made.carrier.close()


@pytest.fixture(params=["file", "server"])
def world(request: pytest.FixtureRequest) -> World:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, World)
    return found


@pytest.mark.req("SF-17", "MSG-07")
async def test_a_write_is_one_row_under_its_call_id(world: World) -> None:
    assert await world.write() == Taken()
    assert await world.rows() == [(operation(), "press ü", 3)]


@pytest.mark.req("SF-13")
async def test_a_write_that_breaks_a_constraint_is_refused_and_leaves_nothing(world: World) -> None:
    for parameters, number in ((VALUES | {"n": -1}, 1), (VALUES | {"unit": None}, 2)):
        answer = await world.write("count", parameters, number)
        assert isinstance(answer, Refused)
        assert answer.code == "database.refused"
        assert answer.error.startswith("plant: ")
    assert await world.rows() == []
    # The connection that heard the refusals is as good as before.
    assert await world.write() == Taken()


async def test_a_repetition_is_refused_by_the_key_or_absorbed_by_the_statement(world: World) -> None:
    assert await world.write() == Taken()
    assert isinstance(await world.write(), Refused)
    assert await world.write("count_once") == Taken()
    assert len(await world.rows()) == 1


@pytest.mark.threat(26)
async def test_parameters_are_values_and_never_sql(world: World) -> None:
    hostile = "x'); DROP TABLE counts; --"
    assert await world.write("count", {"unit": hostile, "n": 1}) == Taken()
    assert await world.rows("SELECT unit FROM counts") == [(hostile,)]


async def test_free_sql_runs_only_where_it_is_allowed_and_still_by_parameters(world: World) -> None:
    sql = "UPDATE counts SET n = n + :n WHERE unit = :unit"
    assert await world.write() == Taken()
    assert await world.write(sql, number=2, allows_free_sql=True) == Taken()
    assert await world.rows("SELECT n FROM counts") == [(6,)]
    answer = await world.carrier.attempt(message(DatabaseWrite(sql, VALUES)), world.definition())
    assert isinstance(answer, Refused)
    assert answer.code == "statement.undefined"
    assert await world.rows("SELECT n FROM counts") == [(6,)]


@pytest.mark.parametrize(
    "sql", ["INSERT INTO nothing VALUES (1)", "INSERT INTO counts VALUES (", "UPDATE counts SET x=1"]
)
async def test_invalid_sql_is_rejected(world: World, sql: str) -> None:
    assert isinstance(await world.write(sql, {}, allows_free_sql=True), Refused)


@pytest.mark.req("SF-19")
async def test_removed_definition_is_rejected_by_name(world: World) -> None:
    write = check_write(world.definition(), "count", VALUES)
    gone = await world.carrier.attempt(message(write), None)
    assert gone == Refused("database.undefined", "site.toml no longer defines the database connection 'plant'")
    for statements, code in (
        ({"other": "DELETE FROM counts"}, "statement.undefined"),
        ({"count": "INSERT INTO counts (unit) VALUES (:unit)"}, "parameter.invalid"),
    ):
        answer = await world.carrier.attempt(message(write), world.definition(statements=statements))
        assert isinstance(answer, Refused)
        assert answer.code == code
    assert await world.rows() == []


@pytest.mark.parametrize("payload", ["", "{}", '{"statement":"count","parameters":{"n":[1]}}'])
async def test_a_payload_that_cannot_be_read_is_refused_not_raised(file: World, payload: str) -> None:
    broken = Message(
        sequence=1, message_id=operation(), category=Category.DATABASE_WRITE, target="plant", payload=payload,
        created_at=datetime(2026, 11, 15, tzinfo=UTC),
    )  # fmt: skip
    answer = await file.carrier.attempt(broken, file.definition())
    assert isinstance(answer, Refused)
    assert answer.code == "message.corrupt"


async def test_values_keep_their_type(world: World) -> None:
    real, flag = ("REAL", "INTEGER") if world.url.startswith("sqlite") else ("double precision", "boolean")
    await world.run(f"CREATE TABLE kinds (i BIGINT, f {real}, b {flag}, t TEXT, n TEXT)")
    sql = "INSERT INTO kinds VALUES (:i, :f, :b, :t, :n)"
    values: dict[str, Scalar] = {"i": -(1 << 63), "f": 0.1, "b": True, "t": "ü\n'\"", "n": None}
    assert await world.write(sql, values, allows_free_sql=True) == Taken()
    assert await world.rows("SELECT * FROM kinds") == [(-(1 << 63), 0.1, True, "ü\n'\"", None)]


async def test_many_writes_at_once_are_all_done(world: World) -> None:
    answers = await asyncio.gather(*(world.write(number=number) for number in range(1, 41)))
    assert set(answers) == {Taken()}
    assert len(await world.rows()) == 40


# -- SQLite ------------------------------------------------------------------------------------------------------------

SQLITE_TABLE = {
    Refused: [apsw.SQLError, apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, apsw.RangeError],
    NotNow: [apsw.BusyError, apsw.LockedError, apsw.FullError, apsw.IOError, apsw.CantOpenError, apsw.ReadOnlyError,
             apsw.PermissionsError, apsw.AuthError, apsw.CorruptError, apsw.NotADBError, apsw.NoMemError,
             apsw.ProtocolError, apsw.InterruptError, apsw.SchemaChangeError, apsw.AbortError],
}  # fmt: skip


@pytest.mark.req("SF-13")
@pytest.mark.parametrize(
    ("kind", "answer"), [(kind, answer) for answer, kinds in SQLITE_TABLE.items() for kind in kinds]
)
def test_each_error_of_sqlite_has_one_meaning(kind: type[apsw.Error], answer: type[CarrierAnswer]) -> None:
    assert isinstance(sqlite.judge("plant", kind("so it is")), answer)


async def test_missing_file_is_not_created_and_the_write_is_kept(tmp_path: Path) -> None:
    world = World(f"sqlite:///{tmp_path / 'nothing.db'}", tmp_path)
    answer = await world.write()
    assert isinstance(answer, NotNow)
    assert "nothing.db" in answer.error
    assert not (tmp_path / "nothing.db").exists()
    await world.run(TABLE)
    assert await world.write() == Taken()
    await world.carrier.close()


async def test_a_locked_file_is_waited_for_as_long_as_the_attempt_may_take(file: World) -> None:
    holder = apsw.Connection(str(file.file))
    holder.execute("BEGIN IMMEDIATE")
    started = asyncio.get_running_loop().time()
    answer = await file.write(timeout_s=0.3)
    assert isinstance(answer, NotNow)
    assert 0.2 < asyncio.get_running_loop().time() - started < 20
    waiting = asyncio.create_task(file.write(timeout_s=20.0))
    holder.execute("COMMIT")
    assert await waiting == Taken()
    holder.close()


async def test_statement_past_its_timeout_is_cancelled_and_leaves_nothing(file: World) -> None:
    endless = (
        "INSERT INTO counts WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) "
        "SELECT :call_id, 'x', count(*) FROM n"
    )
    answer = await file.write(endless, {}, timeout_s=1.5, allows_free_sql=True)
    assert isinstance(answer, NotNow)
    assert "did not finish within 1.5 s" in answer.error
    assert await file.rows() == []
    assert await file.write() == Taken()


async def test_a_read_only_a_full_and_a_damaged_file_keep_the_write(file: World) -> None:
    path = file.file
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    with pytest.raises(apsw.ReadOnlyError) as refused:
        connection.execute("DELETE FROM counts")
    assert isinstance(sqlite.judge("plant", refused.value), NotNow)
    connection.close()
    full = apsw.Connection(str(path))
    full.execute("PRAGMA max_page_count = 2")
    with pytest.raises(apsw.FullError) as refused:
        full.execute("INSERT INTO counts VALUES ('a', hex(zeroblob(100000)), 1)")
    assert isinstance(sqlite.judge("plant", refused.value), NotNow)
    full.close()
    damage(path)
    answer = await file.write()
    assert isinstance(answer, NotNow)
    assert "not a database" in answer.error


async def test_replaced_file_is_written_to(file: World) -> None:
    """A connection kept open would go on writing into the file that was taken away."""
    assert await file.write() == Taken()
    os.rename(file.file, file.file.with_suffix(".old"))
    await file.run(TABLE)
    assert await file.write(number=2) == Taken()
    assert await file.rows() == [(operation(2), "press ü", 3)]


async def test_foreign_keys_are_checked_at_the_commit(world: World) -> None:
    await world.run("CREATE TABLE units (name TEXT PRIMARY KEY)")
    await world.run("CREATE TABLE stops (unit TEXT REFERENCES units DEFERRABLE INITIALLY DEFERRED)")
    answer = await world.write("INSERT INTO stops VALUES (:unit)", {"unit": "none"}, allows_free_sql=True)
    assert isinstance(answer, Refused)
    assert await world.rows("SELECT * FROM stops") == []
    assert await world.write() == Taken()


# -- PostgreSQL --------------------------------------------------------------------------------------------------------

POSTGRESQL_TABLE = {
    Refused: ["22001", "22003", "22P02", "22007", "23502", "23503", "23505", "23514", "23P01", "40002", "42601",
              "42P01", "42703", "42501", "42804", "42P18", "0A000", "21000", "25001", "2D000", "54000", "55000",
              "P0001", "ZZ999"],
    NotNow: ["08000", "08006", "08P01", "25006", "25P03", "25P04", "28000", "28P01", "3D000", "40001", "40P01", "40003",
             "53000", "53100", "53200", "53300", "55P03", "55006", "57014", "57P01", "57P02", "57P03", "58030", "72000",
             "F0000", "XX000", "XX001"],
}  # fmt: skip


@pytest.mark.req("SF-13")
@pytest.mark.parametrize(
    ("sqlstate", "answer"), [(state, answer) for answer, states in POSTGRESQL_TABLE.items() for state in states]
)
def test_each_sqlstate_has_one_meaning(sqlstate: str, answer: type[CarrierAnswer]) -> None:
    error = asyncpg.PostgresError("so it is")
    error.sqlstate = sqlstate
    assert isinstance(postgresql.judge("plant", error), answer)


async def test_values_are_turned_into_the_types_of_postgresql(server: World) -> None:
    await server.run("CREATE TYPE shade AS ENUM ('red')")
    await server.run("CREATE DOMAIN percent AS int CHECK (value <= 100)")
    await server.run(
        "CREATE TABLE kinds (a timestamptz, b numeric, c uuid, d jsonb, e date, f interval, g text, h bytea, i shade, "
        "j percent, k int[], l boolean, m inet, n varchar(3), o smallint, p real)"
    )
    sql = (
        "INSERT INTO kinds VALUES (:a, :b, :c, :d, :e, :f, :g, decode(:h, 'base64'), :i, :j, cast(:k AS text)::int[], "
        ":l, :m, :n, :o, :p)"
    )
    values: dict[str, Scalar] = {
        "a": "2026-11-15T08:14:00+01:00", "b": 1.25, "c": operation(), "d": '{"a": 1}', "e": "2026-11-15",
        "f": "90 minutes", "g": 7, "h": "AP8=", "i": "red", "j": 99, "k": "{1,2}", "l": False, "m": "10.0.0.1",
        "n": "abc", "o": "5", "p": 1,
    }  # fmt: skip
    assert await server.write(sql, values, allows_free_sql=True) == Taken()
    ((a, b, h, f, j, k),) = await server.rows("SELECT a, b::text, h, f::text, j, k FROM kinds")
    assert (a, b, h, f, j, k) == (
        datetime(2026, 11, 15, 7, 14, tzinfo=UTC),
        "1.25",
        b"\x00\xff",
        "01:30:00",
        99,
        [1, 2],
    )
    for wrong in ({"a": "soon"}, {"b": "x"}, {"o": 70000}, {"l": 7}, {"i": "blue"}, {"n": "abcd"}, {"j": 101}):
        assert isinstance(await server.write(sql, values | wrong, allows_free_sql=True), Refused), wrong
    assert len(await server.rows("SELECT 1 FROM kinds")) == 1


async def test_a_lock_that_lasts_longer_than_the_attempt_keeps_the_write(server: World) -> None:
    holder = await asyncpg.connect(server.url)
    async with holder.transaction():
        await holder.execute("LOCK TABLE counts IN ACCESS EXCLUSIVE MODE")
        answer = await server.write(timeout_s=0.4)
        assert isinstance(answer, NotNow)
        assert "carried out" not in answer.error
    # Nothing of it is left waiting for the lock.
    assert await server.rows() == []
    assert await server.write() == Taken()
    await holder.close()


async def test_statement_timeout_is_set_on_the_server_for_one_transaction(server: World) -> None:
    sql = "INSERT INTO counts SELECT :call_id, current_setting('statement_timeout'), 1"
    assert await server.write(sql, {}, allows_free_sql=True, timeout_s=7.5) == Taken()
    assert await server.rows("SELECT unit FROM counts") == [("7500ms",)]


async def test_connections_are_reused_and_replaced_if_they_died_idle(server: World) -> None:
    sql = "INSERT INTO counts SELECT :call_id, pg_backend_pid()::text, 1"
    definition = {"allows_free_sql": True}
    for number in (1, 2):
        assert await server.write(sql, {}, number, **definition) == Taken()
    (first,), (second,) = await server.rows("SELECT unit FROM counts ORDER BY call_id")
    assert first == second
    await server.run(f"SELECT pg_terminate_backend({first}, 5000)")
    assert await server.write(sql, {}, 3, **definition) == Taken()


@pytest.mark.req("SF-13")
async def test_closed_port_and_missing_database_or_user_keep_the_write(
    server: World,
) -> None:
    socket = server.url.split("?")[1]
    for url in (
        f"postgresql://postgres@127.0.0.1:{closed_port()}/plant",
        f"postgresql://postgres@/no_such_database?{socket}",
        f"postgresql://nobody_of_that_name@/postgres?{socket}",
    ):
        assert isinstance(await server.write(url=url), NotNow), url


async def test_a_commit_without_an_answer_is_uncertain_and_the_call_id_makes_its_repetition_harmless(
    server: World,
) -> None:
    async with pg_proxy(server.url) as proxy:
        proxy.commits_to_cut = 1
        answer = await server.write("count_once", url=proxy.url)
        assert isinstance(answer, NotNow)
        assert "the write may have been carried out" in answer.error
        assert await server.write("count_once", url=proxy.url) == Taken()
    assert len(await server.rows()) == 1


async def test_silent_server_is_abandoned_at_the_deadline(server: World) -> None:
    async with pg_proxy(server.url) as proxy:
        assert await server.write(url=proxy.url) == Taken()
        proxy.block()
        started = asyncio.get_running_loop().time()
        answer = await server.write(number=2, url=proxy.url, timeout_s=0.5)
        assert isinstance(answer, NotNow)
        assert asyncio.get_running_loop().time() - started < 20
        proxy.unblock()


@pytest.mark.dec("DEC-35")
async def test_database_host_is_checked_like_any_other(tmp_path: Path) -> None:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return ["169.254.169.254"]

    world = World("postgresql://u@db.example.com/plant", tmp_path)
    world.carrier = DatabaseCarrier(SystemClock(), resolve=resolve)
    answer = await world.write()
    assert isinstance(answer, Refused)
    assert answer.code == "database.blocked"


@pytest.mark.threat(23)
async def test_password_is_read_from_its_file_and_never_shown(server: World) -> None:
    file = server.folder / "plant.secret"
    changes: dict[str, Any] = {"password_file": "plant.secret", "statements": {"raise": "SELECT shout(:word)"}}
    body = "BEGIN RAISE EXCEPTION '%', word; END"
    await server.run(f"CREATE FUNCTION shout(word text) RETURNS void LANGUAGE plpgsql AS $${body}$$")
    answer = await server.write("raise", {"word": "hunter2-hunter2"}, **changes)
    assert isinstance(answer, NotNow)
    assert "does not exist" in answer.error
    file.write_text("hunter2-hunter2\n")
    os.chmod(file, 0o600)
    answer = await server.write("raise", {"word": "hunter2-hunter2"}, **changes)
    assert isinstance(answer, Refused)
    assert "hunter2" not in answer.error
    assert "P0001" in answer.error


async def test_the_password_of_the_environment_is_not_used(server: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "from-the-environment")
    monkeypatch.setenv("PGSSLMODE", "require")
    assert await server.write() == Taken()


async def test_server_without_tls_keeps_the_write(server: World) -> None:
    async with pg_proxy(server.url) as proxy:
        assert isinstance(await server.write(url=proxy.url, tls=True), NotNow)
        assert isinstance(await server.write(url=proxy.url, tls=True, ca_file="no.pem"), NotNow)


async def test_a_certificate_is_checked_against_the_name_of_the_definition_not_the_address(server: World) -> None:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("db.plant.example").configure_cert(context)
    authority.cert_pem.write_to_path(str(server.folder / "ca.pem"))
    trustme.CA().cert_pem.write_to_path(str(server.folder / "other.pem"))
    database = server.url.partition("@")[2].partition("?")[0].lstrip("/")
    server.carrier = DatabaseCarrier(SystemClock(), resolve=resolve)
    async with pg_tls(server.url, context) as port:
        for host, ca_file, kind in (
            ("db.plant.example", "ca.pem", Taken),
            ("db.plant.example", "other.pem", NotNow),
            ("db.plant.example", None, NotNow),
            ("other.plant.example", "ca.pem", NotNow),
            ("127.0.0.1", "ca.pem", NotNow),
        ):
            url = f"postgresql://postgres@{host}:{port}/{database}"
            answer = await server.write(url=url, ca_file=ca_file, tls=True)
            assert isinstance(answer, kind), (host, ca_file, answer)
        await server.carrier.close()
    assert len(await server.rows()) == 1


async def test_missing_driver_is_a_configuration_error_and_keeps_the_write(
    server: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(ConfigError, match="asyncpg is not installed"):
        postgresql._driver(server.definition())
    answer = await server.write()
    assert isinstance(answer, NotNow)
    assert "fieldpost[site-postgresql]" in answer.error
