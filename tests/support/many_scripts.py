"""Many scripts at one site at once: processes with threads that send into one buffer, while its agent is killed."""

import asyncio
import os
import sys
from pathlib import Path

from fieldpost import Site
from support.journey import RunningAgent, statuses_of
from support.ports import free_port
from support.running_central import RunningCentral, call, until

FORWARD = "\n[forward]\ninterval_s = 0.5\npoll_s = 0.05\n"
SENDER = """
import itertools, os, sys, threading
from fieldpost import Site
folder, threads, count, enough = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
site = Site.open(folder)
def work():
    for number in itertools.count():
        if number >= count and os.path.exists(enough):
            return
        with site.context(script=f"crowd-{os.getpid()}"):
            notification_id = site.notify.to("ops").send(f"Pump {number} stopped", "No flow since 08:14.")
        os.write(1, notification_id.encode() + b"\\n")
workers = [threading.Thread(target=work) for _ in range(threads)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
site.close()
"""


async def send_in_a_crowd(
    store_url: str, folder: Path, *, processes: int, threads: int, count: int, kills: int, timeout_s: float
) -> None:
    """Let the scripts send so many in all, and on until the last kill: so often the agent is killed meanwhile. What
    `send` returned is what arrives."""
    async with RunningCentral(store_url, folder / "central", port=free_port()) as central:
        token = (central.folder / "api-token").read_text().strip()
        site_token = (await call(central, token, "POST", "sites", {"name": "plant-7"}))["token"]
        site_folder = folder / "site"
        Site.create(site_folder, "plant-7", central.url, str(site_token)).close()
        with (site_folder / "site.toml").open("a") as settings:
            settings.write(FORWARD)
        agent = RunningAgent(site_folder)
        await agent.start()
        outputs = [folder / f"sent-{number}" for number in range(processes)]
        enough = folder / "enough"
        each = count // processes // threads
        senders = [await _start(site_folder, output, str(threads), str(each), str(enough)) for output in outputs]
        try:
            for kill in range(kills):
                goal = count * (kill + 1) // (kills + 1)
                await until(lambda goal=goal: _returned(outputs) >= goal, timeout_s, f"{goal} sent")  # type: ignore[misc]
                assert agent.is_running, "the agent ended by itself: " + _end_of(site_folder / "agent.log")
                await agent.kill()
                await agent.start()
            enough.touch()
            assert [await sender.wait() for sender in senders] == [0] * processes
            with Site.open(site_folder) as site:
                await until(lambda: not site._buffer.depth().waiting, timeout_s, "an empty buffer", every_s=0.2)
            assert await agent.stop() == 0
        finally:
            for sender in senders:
                if sender.returncode is None:
                    sender.kill()
            if agent.is_running:
                await agent.kill()
        assert await central.stop() == 0
    returned = [line for output in outputs for line in output.read_text().split()]
    arrived = await statuses_of(store_url)
    print(f"{len(returned)} ids returned, {len(arrived)} rows at central, {kills} kills")
    assert len(returned) == len(set(returned)) >= count
    assert set(arrived) == set(returned)


async def _start(folder: Path, output: Path, *arguments: str) -> asyncio.subprocess.Process:
    with output.open("wb") as file:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-c", SENDER, str(folder), *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=file,
            env=dict(os.environ),
        )


def _returned(outputs: list[Path]) -> int:
    """How many ids there are; each is a line of 37 bytes."""
    return sum(output.stat().st_size for output in outputs) // 37


def _end_of(log: Path) -> str:
    return log.read_text()[-2000:]
