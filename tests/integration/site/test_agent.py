"""The agent as the process it is: started, stopped, killed, started twice."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fieldpost import Site
from fieldpost.core.errors import Conflict, Unavailable
from fieldpost.link.messages import Result
from fieldpost.site.buffer.agent_lock import AgentLock, running_agent
from support.disks import fill_up, small_disk
from support.link_central import LinkCentral, link_central
from support.site_folders import make_site
from support.site_writers import ids_in


@pytest.fixture
async def central() -> AsyncIterator[LinkCentral]:
    async with link_central() as central:
        yield central


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "site"


@pytest.fixture
def site(folder: Path, central: LinkCentral) -> Site:
    return make_site(folder, central.url)


async def start_agent(folder: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from fieldpost.cli.main import main; main()",
        "site",
        "--folder",
        str(folder),
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


@asynccontextmanager
async def agent_of(folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    agent = await start_agent(folder)
    try:
        yield agent
    finally:
        if agent.returncode is None:
            agent.kill()
        await agent.communicate()


async def test_agent_forwards_messages_of_scripts_and_stops_on_sigterm(
    site: Site, folder: Path, central: LinkCentral
) -> None:
    before = site.notify.to("ops").send("before", "b")
    async with agent_of(folder) as agent:
        await central.wait_until(lambda: before in central.stored)
        during = site.notify.to("ops").send("during", "b")
        await central.wait_until(lambda: during in central.stored)
        agent.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            _, log = await agent.communicate()
    assert agent.returncode == 0
    assert "agent.started" in log.decode()
    assert "agent.stopped" in log.decode()
    assert "Traceback" not in log.decode()


async def test_second_agent_of_the_same_folder_is_rejected_with_a_clear_error(
    site: Site, folder: Path, central: LinkCentral
) -> None:
    sent = site.notify.to("ops").send("s", "b")
    async with agent_of(folder) as first:
        await central.wait_until(lambda: sent in central.stored)
        async with agent_of(folder) as second:
            async with asyncio.timeout(20):
                _, log = await second.communicate()
    assert second.returncode == 5
    assert f"another agent is running for {folder} (process {first.pid})" in log.decode()


def test_lock_of_a_dead_agent_does_not_block(tmp_path: Path) -> None:
    with AgentLock(tmp_path), pytest.raises(Conflict), AgentLock(tmp_path):
        pass
    assert running_agent(tmp_path) is None
    with AgentLock(tmp_path):
        assert running_agent(tmp_path) == str(os.getpid())


@pytest.mark.skipif(sys.platform == "win32", reason="a lock is nobody's with others there")
async def test_check_for_an_agent_is_not_mistaken_for_one_and_does_not_block_its_start(tmp_path: Path) -> None:
    import fcntl

    def start() -> str | None:
        with AgentLock(tmp_path):
            return running_agent(tmp_path)

    with (tmp_path / "agent.lock").open("w") as look:
        fcntl.flock(look, fcntl.LOCK_SH)  # a look that takes its time
        assert running_agent(tmp_path) is None, "another look sees no agent"
        starting = asyncio.create_task(asyncio.to_thread(start))
        done, _ = await asyncio.wait([starting], timeout=0.1)
        assert not done
    assert await starting == str(os.getpid())


@pytest.mark.fault(1)
@pytest.mark.req("SF-07", "DEC-01")
async def test_repeatedly_killed_agent_forwards_every_id_once(site: Site, folder: Path, central: LinkCentral) -> None:
    ids = [site.notify.to("ops").send(f"n{number}", "b") for number in range(400)]
    central.credits = 40
    for goal in (1, 60, 150, 300):
        async with agent_of(folder) as agent:
            await central.wait_until(lambda goal=goal: len(central.stored) >= goal)  # type: ignore[misc]
            agent.kill()
            await agent.wait()
        ids += [site.notify.to("ops").send("more", "b") for _ in range(10)]
    async with agent_of(folder) as agent:
        await central.wait_until(lambda: len(central.stored) == len(ids))
        agent.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            await agent.communicate()
    assert set(central.stored) == set(ids)
    assert ids_in(folder / "buffer.db") == set()


async def test_agent_with_a_denied_token_reports_it_and_keeps_trying(
    site: Site, folder: Path, central: LinkCentral
) -> None:
    with (folder / "site.toml").open("a") as settings:
        settings.write("[forward]\ninterval_s = 0.1\n")
    central.upgrade_status = 401
    sent = site.notify.to("ops").send("s", "b")
    async with agent_of(folder) as agent:
        # Only those of the forwarder show a token; the control connection has its own.
        await central.wait_until(lambda: len(central.tokens) >= 3)
        assert site.notify.status(sent).status == "forwarding"
        central.upgrade_status = None
        await central.wait_until(lambda: sent in central.stored)
        agent.send_signal(signal.SIGINT)
        async with asyncio.timeout(20):
            _, log = await agent.communicate()
    text = log.decode()
    assert sum("forwarding.failed" in line and "link.denied" in line for line in text.splitlines()) == 1
    assert "forwarding.resumed" in text
    assert agent.returncode == 0


async def test_an_agent_without_a_usable_token_does_not_start(site: Site, folder: Path) -> None:
    (folder / "token").chmod(0o644)
    async with agent_of(folder) as agent:
        async with asyncio.timeout(20):
            _, log = await agent.communicate()
    assert agent.returncode == 8
    assert "chmod 600" in log.decode()
    assert "Traceback" not in log.decode()


@pytest.mark.fault(6)
async def test_an_agent_that_starts_on_a_full_disk_forwards_what_is_buffered(
    tmp_path: Path, central: LinkCentral
) -> None:
    with small_disk(tmp_path / "disk", 4) as disk:
        folder = disk / "site"
        site = make_site(folder, central.url)
        sent = site.notify.to("ops").send("s", "b")
        assert site._buffer.reserve.keep()
        site.close()
        fill_up(disk)
        async with agent_of(folder) as agent:
            await central.wait_until(lambda: sent in central.stored)
            agent.send_signal(signal.SIGTERM)
            async with asyncio.timeout(20):
                _, log = await agent.communicate()
        assert agent.returncode == 0, log.decode()
        assert ids_in(folder / "buffer.db") == set()


def test_lock_that_cannot_be_created_is_reported_with_its_file(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"cannot open .* for writing") as caught, AgentLock(tmp_path / "nowhere"):
        pass
    assert caught.value.code == "agent.no_lock"


async def test_no_log_line_holds_a_body_a_subject_or_the_token(site: Site, folder: Path, central: LinkCentral) -> None:
    central.judge = lambda item: Result(item.notification_id, "rejected", "notification.invalid", "no")
    site.notify.to("ops").send("subject-secret", "body-secret")
    async with agent_of(folder) as agent:
        await central.wait_until(lambda: bool(central.received))
        agent.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            out, log = await agent.communicate()
    text = (out + log).decode()
    assert "message.rejected" in text
    assert "secret" not in text
    assert (folder / "token").read_text().strip() not in text
