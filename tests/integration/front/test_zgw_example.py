"""`examples/zgw` runs unchanged against central."""

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

from fieldpost.testing import ManualClock
from support.front import open_front, served
from support.ports import free_port
from support.zgw import BASE, KANAAL, SECRET, open_zgw


async def test_the_publisher_and_the_receiver_of_the_example_meet(sqlite_url: str, project: Path) -> None:
    async def run(name: str, api: str, client: str, *more: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, str(project / "examples/zgw" / name), api, client, SECRET, *more),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )

    clock = ManualClock(datetime.now(UTC))
    async with open_front(sqlite_url, clock) as front, open_zgw(front) as zgw, served(zgw.app) as url:
        await zgw.create("kanaal", {**KANAAL, "filters": ["zaaktype"]})
        async with asyncio.timeout(60):
            receiver = await run("receiver.py", url + BASE, "consumer", f"http://127.0.0.1:{free_port()}/")
            assert receiver.stdout is not None
            assert (await receiver.stdout.readline()).startswith(b"subscribed ")
            publisher = await run("publisher.py", url + BASE, "publisher")
            said, _ = await publisher.communicate()
            assert said == b"published https://zaken.example.nl/api/v1/statussen/21\n"
            await zgw.deliver()
            assert await receiver.stdout.readline() == b"received create https://zaken.example.nl/api/v1/statussen/21\n"
            await receiver.communicate(b"")
        assert receiver.returncode == 0
        assert await zgw.operate.subscriptions.find() == []
