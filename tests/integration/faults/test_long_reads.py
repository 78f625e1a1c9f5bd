"""Somebody reads an embedded central's database and does not end: its log grows, it is told, and shrinks afterwards."""

import asyncio
import sys

import pytest

from fieldpost.central.store.engine import sqlite_store
from fieldpost.central.watch import health
from fieldpost.central.watch.health import HealthReader
from fieldpost.core.checks import CheckVerdict
from fieldpost.testing import ManualClock
from support.centre import open_centre

READ = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN")
connection.execute("SELECT count(*) FROM notifications").fetchall()
print("reading", flush=True)
sys.stdin.read()
"""
MIB = 1024**2


@pytest.mark.fault(34)
async def test_log_that_grows_because_of_a_long_read_is_reported(
    sqlite_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "LOG_BYTES_KEPT", 6 * MIB)
    monkeypatch.setattr(health, "LOG_BYTES_MAX", 12 * MIB)

    async with open_centre(sqlite_url, clock) as centre:

        async def verdict() -> CheckVerdict:
            checks = (await HealthReader(centre.store, clock).readiness()).checks
            return next(check.verdict for check in checks if check.name == "log")

        async def write(count: int) -> None:
            for _ in range(count):
                await centre.send_many(10, body="x" * 100_000)

        await write(20)
        assert await verdict() is CheckVerdict.OK, "without a reader the log is written back as it grows"
        size = centre.store.log_bytes()
        assert size is not None
        assert size < 12 * MIB
        reader = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", READ, sqlite_url.removeprefix("sqlite:///")),
            stdin=asyncio.subprocess.PIPE,  # it reads until this ends, at the latest with us
            stdout=asyncio.subprocess.PIPE,
        )
        assert reader.stdout is not None
        assert await reader.stdout.readline() == b"reading\n"
        await write(20)
        assert await verdict() is CheckVerdict.WARNING
        assert (await HealthReader(centre.store, clock).readiness()).is_ready, "it goes on all the same"
        reader.kill()
        await reader.wait()
        await write(2)
        assert await verdict() is CheckVerdict.OK
        assert (centre.store.log_bytes() or 0) <= 6 * MIB, "it has shrunk again"
