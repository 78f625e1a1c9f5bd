"""The long form of the kills on the whole way from script to inbox."""

from pathlib import Path

import pytest

from support.journey import kill_at_random


@pytest.mark.timeout(1800)
@pytest.mark.fault(22)
@pytest.mark.req("DEC-01")
async def test_fifty_kills_of_agent_or_central_lose_nothing(store_url: str, tmp_path: Path) -> None:
    await kill_at_random(store_url, tmp_path, kills=50)


@pytest.mark.timeout(3600)
@pytest.mark.fault(1)
@pytest.mark.req("DEC-01", "SF-08")
async def test_two_hundred_kills_of_the_agent_lose_nothing_and_double_nothing(sqlite_url: str, tmp_path: Path) -> None:
    await kill_at_random(sqlite_url, tmp_path, kills=200, victims=("agent",))
