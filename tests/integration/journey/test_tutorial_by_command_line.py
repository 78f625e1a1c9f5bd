"""The tutorial by the command line leads to a delivered mail: its own lines are run, in their order."""

import asyncio
import os
import re
import sys
from pathlib import Path

from fieldpost.testing.mail import MailServerThread
from support.ports import free_port
from support.shell import run_script

PAGE = "docs/tutorial/by-command-line.md"
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
START_S = 60.0


async def test_the_documented_steps_lead_to_a_delivered_mail(project: Path, tmp_path: Path) -> None:
    first, *rest = re.findall(r"^    \$ (.+)$", (project / PAGE).read_text(), re.MULTILINE)
    assert first == "fieldpost central"
    port = free_port()
    environment = {"PATH": PATH, "HOME": str(tmp_path), "COLUMNS": "200"}
    with MailServerThread() as server:
        script = "\n".join(["set -e", *rest]).replace(":8025", f":{port}").replace("2525", str(server.port))
        central = await run_script(f"exec {first} --port {port}", tmp_path, environment)
        try:
            assert central.stdout is not None
            async with asyncio.timeout(START_S):
                while b"Central serves at" not in (line := await central.stdout.readline()):
                    assert line, "central ended"
            steps = await run_script(script, tmp_path, environment)
            async with asyncio.timeout(START_S):
                said, _ = await steps.communicate()
            assert steps.returncode == 0, said.decode()
            assert "It was delivered" in said.decode()
            told = [mail for mail in server.mails if b"Pump 3 stopped" in mail.raw]
            assert sorted(address for mail in told for address in mail.recipients) == [
                "ada@plant.example",
                "grace@plant.example",
            ]
        finally:
            central.terminate()
            await central.wait()
