"""A log that cannot be written: its disk is full, or stderr was closed from the start. The work goes on."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fieldpost import Site
from fieldpost.testing import MailServer
from support.disks import fill_up, small_disk
from support.link_central import LinkCentral, link_central
from support.running_central import MAIN, RunningCentral, call, until
from support.sender import Sender
from support.site_folders import make_site

WITHOUT_STDERR = ("sh", "-c", 'exec "$@" 2>&-', "sh")


@asynccontextmanager
async def agent(folder: Path, *before: str, stderr: int | None = None) -> AsyncIterator[asyncio.subprocess.Process]:
    command = [*before, sys.executable, "-c", MAIN, "site", "--folder", str(folder), "--log-level", "debug"]
    process = await asyncio.create_subprocess_exec(*command, stderr=stderr)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def forwards(folder: Path, process: asyncio.subprocess.Process, central: LinkCentral) -> None:
    """It forwards, through troubles that it would log, and stops in order."""
    with Site.open(folder) as site:
        central.next.extend(["cut", "cut"])
        sent = [site.notify.to("ops").send("s", "b") for _ in range(5)]
        await central.wait_until(lambda: set(sent) <= set(central.stored))
    process.terminate()
    async with asyncio.timeout(20):
        assert await process.wait() in (0, 120), "120: the interpreter could not flush the log at its end"


@pytest.mark.fault(68)
async def test_an_agent_without_stderr_forwards(tmp_path: Path) -> None:
    async with link_central() as central:
        make_site(tmp_path / "site", central.url).close()
        quicken(tmp_path / "site")
        async with agent(tmp_path / "site", *WITHOUT_STDERR) as process:
            await forwards(tmp_path / "site", process, central)


@pytest.mark.fault(68)
async def test_an_agent_whose_log_disk_is_full_forwards(tmp_path: Path) -> None:
    with small_disk(tmp_path / "logs", 1) as logs:
        fill_up(logs)
        log = os.open(logs / "filler", os.O_WRONLY | os.O_APPEND)
        try:
            async with link_central() as central:
                make_site(tmp_path / "site", central.url).close()
                quicken(tmp_path / "site")
                async with agent(tmp_path / "site", stderr=log) as process:
                    await forwards(tmp_path / "site", process, central)
        finally:
            os.close(log)


def quicken(folder: Path) -> None:
    with (folder / "site.toml").open("a") as file:
        file.write("\n[forward]\ninterval_s = 0.2\n")


@pytest.mark.fault(68)
@pytest.mark.parametrize("is_closed", [True, False])
async def test_central_without_a_log_delivers(tmp_path: Path, is_closed: bool) -> None:
    with small_disk(tmp_path / "node", 4) as folder:
        under = WITHOUT_STDERR if is_closed else ()
        node = RunningCentral(f"sqlite:///{tmp_path / 'central.db'}", folder, under=under)
        async with MailServer() as mail, node:
            token = (node.folder / "api-token").read_text().strip()
            settings = {"host": mail.host, "port": mail.port, "tls": "none", "from_address": "a@plant.example"}
            channel = {"name": "mail", "type": "email", "settings": settings, "is_default": True}
            await call(node, token, "POST", "channels", channel)
            await call(node, token, "POST", "lists", {"name": "ops", "targets": ["ops@plant.example"]})
            site = await call(node, token, "POST", "sites", {"name": "plant-7"})
            fill_up(folder)
            async with Sender(site["token"], node.url) as sender:
                await sender.send(60, "ops")
                await until(lambda: mail.mail_count >= 60, 30, "all to be delivered")
            # What still fitted into the last page of the file was written, and then nothing more.
            assert len(node.events("attempt.finished")) < 30
            assert await node.stop() in (0, 120)
