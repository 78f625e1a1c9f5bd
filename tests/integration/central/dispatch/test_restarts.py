"""PostgreSQL restarts, crashes and loses a backend while notifications are taken in and delivered."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from fieldpost.central.store.schema.migrate import upgrade_async
from fieldpost.clock import SystemClock
from fieldpost.core.errors import Unavailable
from fieldpost.core.notification import Status
from support.centre import Centre, open_centre
from support.postgres import PostgresServer

DEADLINE_S = 60.0
RECOVERY_S = 10.0


class Load:
    """A site that sends one after the other and keeps what was not acked, as a forwarder does."""

    def __init__(self, centre: Centre) -> None:
        self.acked: list[str] = []
        self._centre = centre
        self._changed = asyncio.Condition()

    async def run(self) -> None:
        while True:
            item = self._centre.item()
            while True:
                try:
                    await self._centre.submit(item)
                    break
                except Unavailable:
                    await asyncio.sleep(0.01)
            async with self._changed:
                self.acked.append(item.notification_id)
                self._changed.notify_all()

    async def recovers(self) -> None:
        """Something is acked again before long, and then more and more."""
        await self.reaches(len(self.acked) + 1, RECOVERY_S)
        await self.reaches(len(self.acked) + 30, DEADLINE_S)

    async def reaches(self, count: int, within_s: float) -> None:
        async with asyncio.timeout(within_s), self._changed:
            await self._changed.wait_for(lambda: len(self.acked) >= count)


@asynccontextmanager
async def task_of(coroutine: object) -> AsyncIterator["asyncio.Task[None]"]:
    task: asyncio.Task[None] = asyncio.create_task(coroutine)  # type: ignore[arg-type]
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def kill_backend(server: PostgresServer) -> None:
    """One of the store's own server processes dies; PostgreSQL then ends all others and recovers."""
    connection = await asyncpg.connect(server.url())
    try:
        pids = await connection.fetch(
            "select pid from pg_stat_activity where application_name = 'fieldpost' and pid <> pg_backend_pid()"
        )
        os.kill(pids[0]["pid"], signal.SIGKILL)
    finally:
        connection.terminate()


@pytest.mark.fault(27, 28)
async def test_nothing_acked_is_lost_over_restarts_crashes_and_a_killed_backend(pg_server: PostgresServer) -> None:
    await upgrade_async(pg_server.url())
    async with open_centre(pg_server.url(), SystemClock()) as centre:
        await centre.add_channel()
        await centre.add_list()
        dispatcher = centre.dispatcher(interval_s=0.5, lease_s=3.0, renew_s=1.0)
        load = Load(centre)
        async with task_of(dispatcher.run()) as dispatching:
            async with task_of(load.run()) as loading:
                await load.reaches(30, DEADLINE_S)
                for how in (signal.SIGINT, signal.SIGQUIT):
                    await asyncio.to_thread(pg_server.stop, how)
                    await asyncio.to_thread(pg_server.start)
                    await load.recovers()
                await kill_backend(pg_server)
                await load.recovers()
                assert not loading.done()
            await all_delivered(centre, load.acked)
            assert not dispatching.done(), "the node has lived through all of it"
        sent = Counter(centre.adapter.sent())
        assert set(load.acked) <= set(sent)
        # Twice only what was in flight at one of the three times.
        assert sum(count - 1 for count in sent.values()) <= 3 * 8


async def all_delivered(centre: Centre, ids: list[str]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        for i in ids:
            while (await centre.get(i)).status is not Status.DELIVERED:
                await asyncio.sleep(0.02)
