"""Migrations: applied at start or by `fieldpost migrate`, under a lock, forward only."""

import asyncio
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from fieldpost.central.store.engine import parse_url, postgres_engine, sqlite_engine
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
    engine = postgres_engine(parsed)
    try:
        async with engine.begin() as conn:
            await conn.run_sync(_check_version)
            await conn.execute(text("select pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
            await conn.run_sync(_upgrade)
    finally:
        await engine.dispose()


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
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = conn
    scripts = ScriptDirectory.from_config(config)
    current = MigrationContext.configure(conn).get_current_revision()
    if current == scripts.get_current_head():
        return
    if current is not None and current not in {script.revision for script in scripts.walk_revisions()}:
        raise ConfigError(
            "store.newer",
            f"the database has schema {current}, which this version does not know",
            hint="it was made by a newer Fieldpost: run that version, or a newer one",
        )
    command.upgrade(config, "head")
