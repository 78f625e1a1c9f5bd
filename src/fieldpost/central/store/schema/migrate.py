"""Migrations: applied at start or by `fieldpost migrate`, under a lock, forward only.

Revisions are named m0001, m0002, … in the order of the releases. Any other name is a layout from before the first
release: no migration starts there, so the database is refused.
"""

import asyncio
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from fieldpost.central.store.engine.database_url import parse_url
from fieldpost.central.store.engine.postgres_store import postgres_engine_for_migrations
from fieldpost.central.store.engine.sqlite_store import sqlite_engine
from fieldpost.core.errors import ConfigError

Versions = tuple[Path, ...]
"""Folders with migrations; only tests add one to ours."""

VERSIONS = Path(__file__).parent / "migrations" / "versions"
POSTGRESQL_MIN = (14,)
_LOCK_KEY = 7_305_519_842  # any number that no other program on the database is likely to use
_RELEASED = re.compile(r"m\d{4}")


def upgrade(url: str, versions: Versions = (VERSIONS,)) -> None:
    """Upgrade the database at this URL to the current schema; safe to call from several nodes at once."""
    asyncio.run(upgrade_async(url, versions))


async def upgrade_async(url: str, versions: Versions = (VERSIONS,)) -> None:
    """`upgrade`, from within a running event loop."""
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        await asyncio.to_thread(_upgrade_sqlite, url, versions)
        return
    engine = postgres_engine_for_migrations(parsed)
    try:
        async with engine.begin() as conn:
            await conn.run_sync(_check_version)
            await conn.execute(text("select pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
            await conn.run_sync(_upgrade, versions)
    finally:
        await engine.dispose()


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The schema revision of a database and the revision that this version needs."""

    current: str | None
    wanted: str | None
    is_newer: bool
    """The database was migrated by a newer version."""
    is_unreleased: bool = False
    """The database was made before the first release."""


def schema_of(conn: Connection, versions: Versions = (VERSIONS,)) -> SchemaState:
    """Read the schema revision of this database."""
    current = MigrationContext.configure(conn).get_current_revision()
    wanted, known = _known(versions)
    if current is None or current in known:
        return SchemaState(current, wanted, is_newer=False)
    is_newer = _RELEASED.fullmatch(current) is not None
    return SchemaState(current, wanted, is_newer, is_unreleased=not is_newer)


@cache
def _known(versions: Versions) -> tuple[str | None, frozenset[str]]:
    """The newest revision of this version, and all its revisions."""
    scripts = ScriptDirectory.from_config(_config(versions))
    return scripts.get_current_head(), frozenset(script.revision for script in scripts.walk_revisions())


def _config(versions: Versions) -> Config:
    config = Config()
    config.set_main_option("script_location", str(VERSIONS.parent))
    config.set_main_option("version_locations", os.pathsep.join(map(str, versions)))
    config.set_main_option("path_separator", "os")
    return config


def _check_version(conn: Connection) -> None:
    version = conn.dialect.server_version_info or (0,)
    if version < POSTGRESQL_MIN:
        raise ConfigError(
            "store.too_old", f"PostgreSQL {POSTGRESQL_MIN[0]} or later is needed, this is {'.'.join(map(str, version))}"
        )


def _upgrade_sqlite(url: str, versions: Versions) -> None:
    engine = sqlite_engine(parse_url(url))
    try:
        with engine.begin() as conn:
            _upgrade(conn, versions)
    finally:
        engine.dispose()


def _upgrade(conn: Connection, versions: Versions) -> None:
    schema = schema_of(conn, versions)
    if schema.current == schema.wanted:
        return
    if schema.is_newer:
        raise ConfigError(
            "store.newer",
            f"the database has schema {schema.current}, but this version only knows schemas up to {schema.wanted}",
            hint="a newer Fieldpost migrated it: run that version, or a newer one",
        )
    if schema.is_unreleased:
        raise ConfigError(
            "store.unreleased",
            f"the database has schema {schema.current} from before the first release, which cannot be upgraded: start"
            " with a new folder or an empty database",
        )
    config = _config(versions)
    config.attributes["connection"] = conn
    command.upgrade(config, "head")
