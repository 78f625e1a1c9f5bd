"""Processes forked for tests behave like normal processes, and none outlives its test."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

import fieldpost
from support import nursery
from support.need import cannot_have
from support.running_central import until
from support.site_folders import make_site

START_AN_AGENT = """
import asyncio, os, sys
from pathlib import Path
from support import nursery
folder = Path(sys.argv[1])
agent = asyncio.run(nursery.start(["site", "--folder", str(folder)], os.environ, folder, (folder / "log").open("wb")))
print(agent.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def must_fork() -> None:
    if not nursery.can_fork():
        cannot_have("linux", "processes are forked on Linux alone")


async def run(folder: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    with (folder / "log").open("w+b") as log:
        process = await nursery.start(list(arguments), environment, folder, log)
        stdout = await process.read_stdout()
        async with asyncio.timeout(30):
            out = await stdout.read()
            code = await process.wait()
        return code, out.decode(), (folder / "log").read_text()


async def test_a_forked_process_has_its_own_arguments_environment_folder_streams_and_exit_code(tmp_path: Path) -> None:
    assert await run(tmp_path, "version") == (0, f"{fieldpost.__version__}\n", "")
    code, out, err = await run(tmp_path, "site", "parked", FIELDPOST_FOLDER="nowhere")
    assert (code, out, "site.no_folder" in err) == (8, "", True)
    make_site(tmp_path / "here").close()
    assert await run(tmp_path, "site", "parked", FIELDPOST_FOLDER="here") == (0, "No parked calls.\n", "")


async def test_forked_process_ends_with_its_requester_in_any_case(project: Path, tmp_path: Path) -> None:
    make_site(tmp_path / "site").close()
    asking = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", START_AN_AGENT, str(tmp_path / "site")),
        cwd=project / "tests",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert asking.stdout
    agent = int(await asking.stdout.readline())
    assert is_alive(agent)
    asking.kill()
    await asking.communicate()
    await until(lambda: not is_alive(agent), 20, "the agent to end")


def is_alive(pid: int) -> bool:
    """Whether the process runs. A zombie does not."""
    try:
        os.kill(pid, 0)
        return " Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:2]
    except (ProcessLookupError, FileNotFoundError):
        return False
