"""Every kind of connection, on a database with the outbox's tables and one table of the application."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.databases import PostgresDatabases
from support.outbox_kinds import KINDS, MARIADB, OWN_TABLE, POOLER, POSTGRESQL, Kind
from support.pgbouncer import transaction_pooler


@pytest.fixture(scope="session")
def pooler_url(pg_databases: PostgresDatabases) -> Iterator[str]:
    with transaction_pooler(pg_databases.server_url) as url:
        yield url


@pytest.fixture
def pooled_pg_url(pooler_url: str, empty_pg_url: str) -> str:
    """A fresh PostgreSQL database behind a transaction pooler."""
    return f"{pooler_url}{urlsplit(empty_pg_url).path}"


@pytest.fixture(params=KINDS)
def bare_kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    """A kind of connection, on an empty database."""
    make, database = KINDS[request.param]
    fixture = {POSTGRESQL: "empty_pg_url", MARIADB: "mariadb_url", POOLER: "pooled_pg_url"}.get(database)
    kind = make(request.getfixturevalue(fixture) if fixture else f"sqlite:///{tmp_path / 'application.db'}")
    try:
        yield kind
    finally:
        kind.close()


@pytest.fixture
def kind(bare_kind: Kind) -> Kind:
    """A kind of connection, with the tables."""
    with bare_kind.transaction() as connection:
        bare_kind.create_tables(connection)
        bare_kind.execute(connection, OWN_TABLE)
    return bare_kind
