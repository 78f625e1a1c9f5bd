"""The database fixtures work: a broken one would make many tests meaningless."""

import fcntl
import signal
import subprocess
import sys
import time
from pathlib import Path

import asyncpg
import pytest

from support.postgres import PostgresServer


async def test_each_test_gets_a_database_that_takes_connections(pg_url: str) -> None:
    connection = await asyncpg.connect(pg_url)
    try:
        assert await connection.fetchval("select 1") == 1
        await connection.execute("create table left_behind ()")
    finally:
        await connection.close()


async def test_a_database_left_dirty_is_not_seen_by_the_next_test(pg_url: str) -> None:
    connection = await asyncpg.connect(pg_url)
    try:
        assert await connection.fetchval("select to_regclass('left_behind')") is None
    finally:
        await connection.close()


def test_store_url_names_both_kinds_of_store(store_url: str) -> None:
    assert store_url.startswith(("sqlite:////", "postgresql://"))


async def test_a_crashed_server_starts_again_with_what_was_committed(pg_server: PostgresServer) -> None:
    connection = await asyncpg.connect(pg_server.url())
    await connection.execute("create table kept (n int)")
    await connection.execute("insert into kept values (7)")
    pg_server.stop(signal.SIGQUIT)
    connection.terminate()
    pg_server.start()
    connection = await asyncpg.connect(pg_server.url())
    assert await connection.fetchval("select n from kept") == 7
    await connection.close()


def test_a_removed_server_leaves_nothing_behind(pg_server: PostgresServer) -> None:
    pg_server.remove()
    assert not pg_server.folder.exists()


@pytest.mark.usefixtures("pg_server")
def test_the_shared_server_ends_when_its_last_user_is_killed(project: Path, tmp_path: Path) -> None:
    user = subprocess.Popen(
        [sys.executable, "-c", _HOLD_A_SHARED_SERVER, str(tmp_path)],
        cwd=project / "tests",
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )
    assert user.stdout
    url = user.stdout.readline().strip()
    folder = Path(url.partition("host=")[2])
    assert folder.is_dir(), url
    user.kill()
    user.communicate()
    deadline = time.monotonic() + 30
    while folder.exists() and time.monotonic() < deadline:
        # The keeper holds this lock while it stops the server, so acquiring it waits for the stop.
        with (tmp_path / "users").open("a") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
    assert not folder.exists()


_HOLD_A_SHARED_SERVER = """
import sys
from pathlib import Path
from support.shared_postgres import shared_server
with shared_server(Path(sys.argv[1])) as url:
    print(url, flush=True)
    sys.stdin.read()
"""
