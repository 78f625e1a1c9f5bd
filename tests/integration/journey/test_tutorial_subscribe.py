"""The tutorial on subscriptions leads to verified webhooks: its own lines are run, in their order."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from support.ports import free_port
from support.shell import run_script

PAGE = "docs/tutorial/subscribe-to-events.md"
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
LIMIT_S = 120.0
LISTEN = """
if [ -f pid ]; then kill "$(cat pid)"; while kill -0 "$(cat pid)" 2>/dev/null; do sleep 0.1; done; fi
: > starting
{} > starting 2>&1 &
echo $! > pid
until grep -q Listening starting; do sleep 0.1; done
mv starting "heard-$((n=n+1))"
"""


@pytest.mark.req("WHK-02")
async def test_the_documented_steps_lead_to_verified_webhooks(project: Path, tmp_path: Path) -> None:
    first, *rest = re.findall(r"^    \$ (.+)$", (project / PAGE).read_text(), re.MULTILINE)
    assert first.endswith("fieldpost central")
    port, receiver = free_port(), free_port()
    environment = {"PATH": PATH, "HOME": str(tmp_path), "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
    lines = [
        LISTEN.format(f"{line} --port {receiver}") if line.startswith("fieldpost listen") else line for line in rest
    ]
    script = "\n".join(["set -e", "trap 'kill $(cat pid)' EXIT", *lines])
    script = script.replace(":8025", f":{port}").replace(":8600", f":{receiver}")
    central = await run_script(f"{first.replace('fieldpost', 'exec fieldpost')} --port {port}", tmp_path, environment)
    try:
        assert central.stdout is not None
        async with asyncio.timeout(LIMIT_S):
            while b"Central serves at" not in (line := await central.stdout.readline()):
                assert line, "central ended"
            steps = await run_script(script, tmp_path, environment)
            said = (await steps.communicate())[0].decode()
        assert steps.returncode == 0, said
        first_heard, failing, fixed = [(tmp_path / f"heard-{n}").read_text() for n in (1, 2, 3)]
        assert ("fieldpost.test" in first_heard, '"order": 17' in first_heard) == (True, True), first_heard
        assert '"order": 18' not in first_heard + failing + fixed, "its filter does not match"
        assert '"order": 19' in failing
        assert '"order": 19' in fixed
        assert "The receiver answered 503" in said
        assert "monitored" in said
        assert "It was delivered" in said
    finally:
        central.terminate()
        await central.wait()
