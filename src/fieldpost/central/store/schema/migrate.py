"""Migrations: applied at start or by `fieldpost migrate`, under a lock, forward only."""

import asyncio
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from fieldpost.central.store.engine.store import parse_url, postgres_engine_for_migrations, sqlite_engine
from fieldpost.core.errors import ConfigError

POSTGRESQL_MIN = (14,)
_LOCK_KEY = 7_305_519_842  # any number that no other program on the database is likely to use


def upgrade(url: str) -> None:
    """Bring the database at this URL to the present schema; safe to call from several nodes at once."""
    asyncio.run(upgrade_async(url))


async def upgrade_async(url: str) -> None:
    """The same, from within a running loop."""
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        await asyncio.to_thread(_upgrade_sqlite, url)
        return
    engine = postgres_engine_for_migrations(parsed)
    try:
        async with engine.begin() as conn:
            await conn.run_sync(_check_version)
            await conn.execute(text("select pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
            await conn.run_sync(_upgrade)
    finally:
        await engine.dispose()


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The schema that a database has, and the one that this version wants."""

    current: str | None
    wanted: str | None
    is_newer: bool
    """Whether this version has never heard of it."""


def schema_of(conn: Connection) -> SchemaState:
    """What schema this database has."""
    current = MigrationContext.configure(conn).get_current_revision()
    wanted, known = _known()
    return SchemaState(current, wanted, current is not None and current not in known)


@cache
def _known() -> tuple[str | None, frozenset[str]]:
    """The newest schema of this version, and all that it knows."""
    scripts = ScriptDirectory.from_config(_config())
    return scripts.get_current_head(), frozenset(script.revision for script in scripts.walk_revisions())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def _check_version(conn: Connection) -> None:
    version = conn.dialect.server_version_info or (0,)
    if version < POSTGRESQL_MIN:
        raise ConfigError(
            "store.too_old", f"PostgreSQL {POSTGRESQL_MIN[0]} or later is needed, this is {'.'.join(map(str, version))}"
        )


def _upgrade_sqlite(url: str) -> None:
    engine = sqlite_engine(parse_url(url))
    try:
        with engine.begin() as conn:
            _upgrade(conn)
    finally:
        engine.dispose()


def _upgrade(conn: Connection) -> None:
    schema = schema_of(conn)
    if schema.current == schema.wanted:
        return
    if schema.is_newer:
        raise ConfigError(
            "store.newer",
            f"the database has schema {schema.current}, which this version does not know",
            hint="it was made by a newer Fieldpost: run that version, or a newer one",
        )
    config = _config()
    config.attributes["connection"] = conn
    command.upgrade(config, "head")
