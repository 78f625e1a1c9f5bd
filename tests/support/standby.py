"""A PostgreSQL primary with a synchronous standby that can be frozen, and promoted after the primary has died."""

import asyncio
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import asyncpg

from support.postgres import PostgresServer
from support.running_central import until

NAME = "standby"


class Replicated:
    """Two servers with streaming replication; every commit of the primary waits for the standby."""

    def __init__(self) -> None:
        self.primary = PostgresServer(options=("-c", f"synchronous_standby_names={NAME}"))
        source = f"host={self.primary.folder} user=postgres application_name={NAME}"
        self.standby = PostgresServer(options=("-c", f"primary_conninfo={source}"))

    async def __aenter__(self) -> Self:
        try:
            self.primary.make_cluster()
            # A copy of a cluster that is not running is a base backup.
            await asyncio.to_thread(
                subprocess.run, ["cp", "-a", f"{self.primary.folder}/.", self.standby.folder], check=True
            )
            (self.standby.data / "standby.signal").touch()
            self.primary.start()
            self.standby.start()
            await until(self._is_streaming, 30, "the standby to be connected")
        except BaseException:
            self.remove()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def remove(self) -> None:
        for server in (self.standby, self.primary):
            _kill(server)
            server.remove()

    def freeze(self) -> None:
        _signal(self.standby, signal.SIGSTOP)

    def thaw(self) -> None:
        _signal(self.standby, signal.SIGCONT)

    def crash_primary(self) -> None:
        """Kill the primary and start it again."""
        _kill(self.primary)
        self.primary.start()

    async def cancel_commits(self) -> None:
        """Wait for commits that wait for the standby, and cancel them as an administrator would."""
        waiting = await until(self.waiting_commits, 10, "a commit to wait")
        await query(self.primary.url(), "select pg_cancel_backend(pid) from unnest($1::int[]) pid", waiting)

    async def fail_over(self) -> str:
        """Kill the primary and promote the standby; its URL.

        The standby restarts, so that it does not read from its socket what it had not received before it was frozen.
        """
        _kill(self.primary)
        _kill(self.standby)
        self.standby.start()
        await query(self.standby.url(), "select pg_promote()")
        return self.standby.url()

    async def waiting_commits(self) -> list[int]:
        """The process ids of the primary's sessions whose commit waits for the standby."""
        found = await query(self.primary.url(), "select pid from pg_stat_activity where wait_event = 'SyncRep'")
        return [row["pid"] for row in found]

    async def _is_streaming(self) -> bool:
        return bool(await query(self.primary.url(), "select 1 from pg_stat_replication where sync_state = 'sync'"))


async def query(url: str, sql: str, *values: object) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url)
    try:
        return list(await connection.fetch(sql, *values))
    finally:
        await connection.close()


def _kill(server: PostgresServer) -> None:
    _signal(server, signal.SIGKILL)
    server.stop()
    # The file of a killed server says that it is ready, also while it starts again.
    (server.data / "postmaster.pid").unlink(missing_ok=True)


def _signal(server: PostgresServer, which: signal.Signals) -> None:
    """Send a signal to the server and its children, which are sessions and groups of their own."""
    if server.process is None:
        return
    for pid in (server.process.pid, *_children(server.process.pid)):
        with suppress(ProcessLookupError):
            os.kill(pid, which)


def _children(parent: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(status.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(status.parent.name))
    return found
