"""Fixtures that every kind of test may use.

    pg_url            a fresh PostgreSQL database with the present schema, as postgresql:// URL
    empty_pg_url      the same without any table
    pg_server         a PostgreSQL server of the test's own, with fsync on, to stop, crash and start again
    sqlite_url        a fresh SQLite file with the present schema, as sqlite:/// URL
    store_url         a fresh central store with the present schema, once on SQLite and once on PostgreSQL
    empty_store_url   the same without any table
    mariadb_url       a fresh MariaDB database without any table, as mariadb:// URL
    chromium_path     the browser for the console
    project           the folder that holds pyproject.toml

PostgreSQL comes from TEST_PG_DSN, else from a server of our own (support/postgres.py). What a machine cannot offer
makes its tests skip with the reason; with CI=true they fail instead (support/need.py).
"""

import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support.browser import find_chromium
from support.databases import PostgresDatabases, SqliteFiles
from support.mariadb import MariadbServer
from support.need import cannot_have
from support.need_hooks import pytest_configure, pytest_runtest_setup, pytest_terminal_summary
from support.postgres import PostgresServer, PostgresUnavailable
from support.shared_postgres import shared_server

__all__ = ["pytest_configure", "pytest_runtest_setup", "pytest_terminal_summary"]

STORES = ("sqlite", "postgresql")

# How long an example takes says how busy the machine is. Continuous integration draws the same examples every time, so
# that a change fails by what it changed; whoever runs the tests by hand goes on searching.
settings.register_profile(
    "steady", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    # A shell starts what it puts into the background deaf to Ctrl-C, and so would be every process that a test starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Imported modules and collected tests live to the end: until all are there, collections would find nothing.
gc.disable()


def pytest_collection_finish() -> None:
    """From now on collections skip all that."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def project() -> Path:
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def worker() -> str:
    return os.environ.get("PYTEST_XDIST_WORKER", "main")


@pytest.fixture(scope="session")
def pg_databases(tmp_path_factory: pytest.TempPathFactory, worker: str) -> Iterator[PostgresDatabases]:
    with ExitStack() as stack:
        server_url = os.environ.get("TEST_PG_DSN")
        if not server_url:
            # Workers of one session have folders side by side, so the one above them is what they share.
            base = tmp_path_factory.getbasetemp()
            shared = base if worker == "main" else base.parent
            try:
                server_url = stack.enter_context(shared_server(shared / "postgres"))
            except PostgresUnavailable as error:
                cannot_have("postgres", str(error))
        databases = PostgresDatabases(server_url, worker)
        stack.callback(databases.close)
        databases.make_template()
        yield databases


@pytest.fixture
def pg_url(pg_databases: PostgresDatabases) -> Iterator[str]:
    with pg_databases.fresh() as url:
        yield url


@pytest.fixture
def empty_pg_url(pg_databases: PostgresDatabases) -> Iterator[str]:
    with pg_databases.fresh(is_empty=True) as url:
        yield url


@pytest.fixture
def pg_server() -> Iterator[PostgresServer]:
    try:
        server = PostgresServer(durable=True).__enter__()
    except PostgresUnavailable as error:
        cannot_have("postgres", str(error))
    yield server
    server.remove()


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariadbServer]:
    with MariadbServer() as server:
        yield server


@pytest.fixture
def mariadb_url(mariadb_server: MariadbServer) -> Iterator[str]:
    with mariadb_server.fresh() as url:
        yield url


@pytest.fixture(scope="session")
def sqlite_files(tmp_path_factory: pytest.TempPathFactory) -> SqliteFiles:
    return SqliteFiles(tmp_path_factory.mktemp("sqlite"))


@pytest.fixture
def sqlite_url(sqlite_files: SqliteFiles, tmp_path: Path) -> str:
    return sqlite_files.fresh(tmp_path)


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue({"sqlite": "sqlite_url", "postgresql": "pg_url"}[request.param])


@pytest.fixture(params=STORES)
def empty_store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'central.db'}"
    return request.getfixturevalue("empty_pg_url")


@pytest.fixture(scope="session")
def chromium_path() -> str:
    return find_chromium() or cannot_have(
        "chromium", "no Chromium: set TEST_CHROMIUM, or put chromium on PATH (see tools/browser)"
    )
