"""Both tutorials of the outbox lead to an event at central: their own lines are run, in their order."""

import asyncio
import os
import re
import sqlite3
import sys
from pathlib import Path

import pytest

from support.ports import free_port
from support.shell import run_script

PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
START_S = 60.0


@pytest.mark.req("EVT-20")
@pytest.mark.parametrize("name", ["sqlalchemy", "django"])
async def test_the_documented_steps_lead_to_an_event_at_central(project: Path, tmp_path: Path, name: str) -> None:
    page = (project / f"docs/tutorial/events-with-{name}.md").read_text()
    first, *rest = re.findall(r"^    \$ (.+)$", page, re.MULTILINE)
    assert first == "fieldpost central"
    [program] = re.findall(r"^```python\n(.+?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "shop.py").write_text(program)
    at = next(number for number, line in enumerate(rest) if line.endswith("fieldpost relay"))
    port = free_port()
    environment = {"PATH": PATH, "HOME": str(tmp_path), "COLUMNS": "200", "FIELDPOST_URL": f"http://127.0.0.1:{port}"}
    central = await run_script(f"exec {first} --port {port}", tmp_path, environment)
    relay = None
    try:
        assert central.stdout is not None
        async with asyncio.timeout(START_S):
            while b"Central serves at" not in (line := await central.stdout.readline()):
                assert line, "central ended"
        written = await finished("\n".join(["set -e", *rest[:at], "echo $id > id"]), tmp_path, environment)
        shown = re.findall(r"^    (\[\(.+)$", page, re.MULTILINE)
        assert written[-1:] == shown, written
        assert "rolled back" in written
        relay = await run_script(
            rest[at].replace(":8025", f":{port}").replace("fieldpost relay", "exec fieldpost relay"),
            tmp_path,
            environment,
        )
        await until_sent(tmp_path / "shop.db")
        steps = "\n".join(["set -e", "id=$(cat id)", *rest[at + 1 :]]).replace(":8025", f":{port}")
        said = "\n".join(await finished(steps, tmp_path, environment))
        assert '"order":17' in re.sub(r"\s", "", said)
        assert "accepts the token" in said
    finally:
        for process in (relay, central):
            if process is not None:
                process.terminate()
                await process.communicate()


async def finished(script: str, folder: Path, environment: dict[str, str]) -> list[str]:
    """The lines of a script that succeeds."""
    process = await run_script(script, folder, environment)
    async with asyncio.timeout(START_S):
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode().splitlines()


async def until_sent(file: Path) -> None:
    async with asyncio.timeout(START_S):
        while True:
            with sqlite3.connect(file) as connection:
                found = connection.execute("select status from event_outbox").fetchall()
            connection.close()
            if found == [("SENT",)]:
                return
            await asyncio.sleep(0.05)


async def test_the_documented_test_of_an_application_passes(project: Path, tmp_path: Path) -> None:
    page = (project / "docs/how-to/test-with-the-outbox.md").read_text()
    program = re.findall(r"^```python\n(.+?)^```$", page, re.MULTILINE | re.DOTALL)[0]
    (tmp_path / "test_orders.py").write_text(program)
    said = await finished("python -m pytest -q -p no:schemathesis test_orders.py", tmp_path, {"PATH": PATH})
    assert "1 passed" in said[-1]
