"""Migrations: the first leads exactly to the tables of `schema/`; a made-up next release upgrades a filled database."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, insert, inspect, text
from sqlalchemy.exc import DBAPIError

from fieldpost.central.store.accounts import identities
from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.schema.account_tables import login_links, users
from fieldpost.central.store.schema.migrate import VERSIONS, upgrade, upgrade_async
from fieldpost.central.store.schema.tables import metadata
from fieldpost.core.errors import ConfigError
from fieldpost.testing import ManualClock
from support.centre import Centre
from support.databases import PostgresDatabases, apart

HERE = Path(__file__).parent
NEXT = (VERSIONS, HERE / "next_version")
POSTGRESQL_SCHEMA = """
    select 'column', table_name, column_name, data_type, is_nullable, column_default
    from information_schema.columns where table_schema = 'public'
    union all
    select 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid), '', ''
    from pg_constraint where connamespace = 'public'::regnamespace
    union all
    select 'index', tablename, indexname, indexdef, '', '' from pg_indexes where schemaname = 'public'
    union all
    select 'options', relname, '', reloptions::text, '', ''
    from pg_class where relnamespace = 'public'::regnamespace and reloptions is not null
"""


@pytest.fixture
def other_empty_url(empty_store_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A second empty database of the same kind."""
    if empty_store_url.startswith("sqlite"):
        yield f"sqlite:///{tmp_path / 'other.db'}"
        return
    databases: PostgresDatabases = request.getfixturevalue("pg_databases")
    with databases.fresh(is_empty=True) as url:
        yield url


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = open_store(url)
    try:
        yield store
    finally:
        await store.close()


def schema_of(conn: Connection) -> set[tuple[str, ...]]:
    """All that the database knows of its tables, but for Alembic's own; in its own words where it rewrites ours."""
    if conn.dialect.name == "postgresql":
        found = {tuple(str(part) for part in row) for row in conn.execute(text(POSTGRESQL_SCHEMA))}
        return {row for row in found if row[1] != "alembic_version"}
    # Triggers are made by migrations only; `test_sealer` proves them.
    rows = conn.execute(
        text(
            "select type, name, tbl_name, sql from sqlite_master"
            " where tbl_name <> 'alembic_version' and type <> 'trigger'"
        )
    )
    found = set()
    for kind, name, table, sql in rows:
        if kind == "table":
            columns = conn.exec_driver_sql(f"pragma table_info({name})").all()
            keys = conn.exec_driver_sql(f"pragma foreign_key_list({name})").all()
            parts = re.split(r", *(?=CONSTRAINT)|\s\)(?: WITHOUT ROWID)?$", " ".join(sql.split()))
            checks = {part for part in parts if part and " CHECK (" in part}
            found |= {
                (kind, name, str(sorted(map(str, columns))), str(sorted(map(str, keys)))),
                *((c,) for c in checks),
            }
        else:
            found.add((kind, name, table, " ".join(str(sql).split())))
    return found


@pytest.mark.req("DEC-05")
@pytest.mark.req("CFG-14")
async def test_migrations_create_exactly_the_declared_tables(empty_store_url: str, other_empty_url: str) -> None:
    """Compared as the database itself describes them: columns, keys, checks, indexes with their conditions."""
    await upgrade_async(empty_store_url)
    async with opened(empty_store_url) as migrated, opened(other_empty_url) as made:
        await made.write(metadata.create_all)
        by_migrations, by_tables = await migrated.read(schema_of), await made.read(schema_of)
    assert by_migrations == by_tables
    told = str(by_tables)
    for name in ("ck_notifications_next_attempt", "ck_targets_error", "ix_notifications_claim", "held_by is not null"):
        assert name in told.lower() or name in told, f"the comparison does not see {name}"


async def test_alembic_finds_nothing_left_to_migrate(store_url: str) -> None:
    def compare(conn: Connection) -> list[object]:
        context = MigrationContext.configure(conn, opts={"compare_type": True})
        return list(compare_metadata(context, metadata))

    async with opened(store_url) as store:
        assert await store.read(compare) == []


async def test_alembic_would_notice_a_column_and_an_index_without_a_migration(store_url: str) -> None:
    def change_and_compare(conn: Connection) -> list[object]:
        conn.exec_driver_sql("drop index ix_audit_correlation_id")
        conn.exec_driver_sql("alter table lists add column more text")
        return list(compare_metadata(MigrationContext.configure(conn), metadata))

    async with opened(store_url) as store:
        assert {difference[0] for difference in await store.write(change_and_compare)} == {"add_index", "remove_column"}  # type: ignore[index]


async def test_current_schema_is_not_changed(store_url: str) -> None:
    async with opened(store_url) as store:
        before = await store.read(schema_of)
        await upgrade_async(store_url)
        assert await store.read(schema_of) == before


async def test_several_nodes_may_migrate_at_once(empty_store_url: str) -> None:
    await asyncio.gather(*(upgrade_async(empty_store_url) for _ in range(4)))
    async with opened(empty_store_url) as store:
        assert "notifications" in await store.read(lambda conn: inspect(conn).get_table_names())


def test_migrating_needs_no_loop(empty_store_url: str) -> None:
    apart(lambda: upgrade(empty_store_url))
    apart(lambda: upgrade(empty_store_url))


@pytest.mark.parametrize(
    ("revision", "code", "advice"),
    [("m9999", "store.newer", "run that version"), ("0009", "store.unreleased", "new folder or an empty database")],
)
async def test_schema_unknown_to_the_migrations_is_rejected(
    store_url: str, revision: str, code: str, advice: str
) -> None:
    async with opened(store_url) as store:
        before = await store.read(schema_of)
        await store.write(
            lambda conn: conn.execute(text("update alembic_version set version_num = :r"), {"r": revision}).rowcount
        )
        with pytest.raises(ConfigError) as caught:
            await upgrade_async(store_url)
        assert caught.value.code == code
        assert revision in caught.value.message
        assert advice in str(caught.value)
        assert await store.read(schema_of) == before


@pytest.mark.req("DEC-05")
async def test_the_next_version_upgrades_a_filled_database_of_this_one(
    mailing: Centre, store_url: str, clock: ManualClock
) -> None:
    """Several nodes migrate at once; rows, targets and audit entries are as before, this version refuses the result."""
    sent = await mailing.send()
    await mailing.deliver()
    waiting = await mailing.send()
    await mailing.store.write(identities.add_user, identities.UserRecord("anna", "hash", "admin", clock.now()))
    before = [await mailing.get(sent), await mailing.get(waiting)]
    story = await mailing.story(sent)
    await asyncio.gather(*(upgrade_async(store_url, NEXT) for _ in range(3)))
    assert [await mailing.get(sent), await mailing.get(waiting)] == before
    assert await mailing.story(sent) == story
    assert await mailing.rows("select urgency from notifications") == [("info",), ("info",)]
    assert await mailing.rows("select name, role from users where name = 'anna'") == [("anna", "admin")]
    assert len(await mailing.rows("select channel_name from channels where settings is not null")) == 1
    assert await mailing.rows("select version_num from alembic_version") == [("m9999",)]
    with pytest.raises(ConfigError) as caught:
        await upgrade_async(store_url)
    assert caught.value.code == "store.newer"


@pytest.mark.req("DEC-05")
async def test_users_and_their_links_survive_the_new_role(empty_store_url: str, tmp_path: Path) -> None:
    """On SQLite the table of users is made again, and dropping it would delete the links with it."""
    before = tmp_path / "before"
    before.mkdir()
    for file in VERSIONS.glob("m000[1-7]*"):
        shutil.copy(file, before)
    await upgrade_async(empty_store_url, (before,))
    user = identities.UserRecord("anna", "hash", "operator", ManualClock().now(), "admin", version=3)
    async with opened(empty_store_url) as store:
        await store.write(_add_old_user, user)
    await upgrade_async(empty_store_url)
    async with opened(empty_store_url) as store:
        assert await store.read(identities.get_user, "anna") == user
        [link] = await store.read(lambda conn: conn.execute(text("select prefix, user_name from login_links")).all())
        assert tuple(link) == ("p1", "anna")
        await store.write(identities.remove_user, "anna")
        assert await store.read(lambda conn: conn.execute(text("select prefix from login_links")).all()) == []


def _add_old_user(conn: Connection, user: identities.UserRecord) -> None:
    columns = ("name", "password_hash", "role", "created_at", "created_by", "version")
    conn.execute(insert(users).values({name: getattr(user, name) for name in columns}))
    at = user.created_at
    link = {"prefix": "p1", "digest": b"d", "user_name": "anna", "created_by": "admin", "created_at": at}
    conn.execute(insert(login_links).values(**link, expires_at=at))


async def test_a_migration_that_fails_changes_nothing(mailing: Centre, store_url: str) -> None:
    sent = await mailing.send()
    before = await mailing.store.read(schema_of)
    with pytest.raises(DBAPIError, match="no_such_column"):
        await upgrade_async(store_url, (VERSIONS, HERE / "broken_version"))
    assert await mailing.store.read(schema_of) == before
    assert await mailing.rows("select version_num from alembic_version") == [(max(VERSIONS.glob("m*.py")).stem[:5],)]
    assert (await mailing.get(sent)).notification_id == sent


@pytest.mark.req("DEC-05")
@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://root@localhost/x", "sqlite or postgresql"),
        ("sqlite:///:memory:", "file"),
        ("sqlite://", "file"),
        ("no url", "URL"),
    ],
)
async def test_invalid_store_is_rejected_by_name(url: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(url)
    assert caught.value.code == "store.url"
    assert says in caught.value.message
