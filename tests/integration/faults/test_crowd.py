"""Many scripts at once, and an agent that dies: the short form; the long one is in tests/chaos."""

from pathlib import Path

import pytest

from support.many_scripts import send_in_a_crowd


@pytest.mark.fault(1)
@pytest.mark.req("API-01", "DEC-01", "DEC-24", "SF-07")
async def test_notifications_of_many_processes_arrive_although_the_agent_was_killed(
    sqlite_url: str, tmp_path: Path
) -> None:
    await send_in_a_crowd(sqlite_url, tmp_path, processes=5, threads=4, count=2_000, kills=2, timeout_s=60)
