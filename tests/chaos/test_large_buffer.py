"""A site that could not forward for a long time: its agent starts at once, and holds no more in memory than ever."""

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from fieldpost.site.buffer.connection import connect
from support.link_central import link_central
from support.running_central import MAIN
from support.site_folders import make_site

ROWS = 1_000_000
READY_S = 2.0
RSS_BYTES_MAX = 200 * 1024 * 1024

FILL = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :rows),
ids (n, id) AS (SELECT n, format('01a1de57-9e44-7000-8000-%012x', n) FROM numbers)
INSERT INTO messages (message_id, category, target, payload, created_at)
SELECT id, 'notification', 'central',
    format('{"notification_id":"%s","list_name":"ops","subject":"Pump %d stopped","body":"%s"}', id, n, :body), n
FROM ids
"""


@pytest.mark.fault(70)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_agent_starts_on_a_million_rows_as_fast_as_on_one(tmp_path: Path) -> None:
    async with link_central() as central:
        folder = tmp_path / "site"
        make_site(folder, central.url).close()
        connection = connect(folder / "buffer.db")
        connection.execute(FILL, {"rows": ROWS, "body": "No flow since 08:14. " * 10})
        connection.close()
        assert (folder / "buffer.db").stat().st_size > ROWS * 300
        begun = time.monotonic()
        agent = await asyncio.create_subprocess_exec(sys.executable, "-c", MAIN, "site", "--folder", str(folder))
        try:
            await central.wait_until(lambda: len(central.stored) > 0)
            ready_s = time.monotonic() - begun
            await central.wait_until(lambda: len(central.stored) >= 5_000, timeout_s=60)
            resident = peak_resident_bytes(agent.pid)
        finally:
            agent.kill()
            await agent.wait()
        oldest = min(central.stored)
    assert oldest == "01a1de57-9e44-7000-8000-000000000001"
    assert resident < RSS_BYTES_MAX
    # What the interpreter takes to start on a busy machine is not the buffer's doing.
    assert ready_s < READY_S + await bare_start_s()


def peak_resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


async def bare_start_s() -> float:
    begun = time.monotonic()
    program = "import fieldpost.run.site"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, env=dict(os.environ))
    await process.wait()
    return time.monotonic() - begun
