"""The long form of `tests/integration/front/test_openapi.py`: every case that the API's description defines."""

from pathlib import Path

import pytest

from fieldpost.testing import ManualClock
from support.front import open_front
from support.schemathesis import try_all


@pytest.mark.timeout(900)
@pytest.mark.parametrize("role", ["publisher", "viewer", "operator", "admin"])
async def test_every_case_that_the_description_defines_is_answered_as_it_says(
    sqlite_url: str, role: str, tmp_path: Path
) -> None:
    async with open_front(sqlite_url, ManualClock()) as front:
        assert await try_all(front, role, tmp_path, "--max-examples", "20") is None
