"""Fixtures of the commands' tests.

front    the application on SQLite, under a clock that stands still until the test moves it
cli      `fieldpost` against it, in this process or as one of its own
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fieldpost.testing import ManualClock
from support.commands import Cli
from support.front import Front, open_front, served


@pytest.fixture
async def front(sqlite_url: str) -> AsyncIterator[Front]:
    async with open_front(sqlite_url, ManualClock()) as opened:
        yield opened


@pytest.fixture
async def cli(front: Front, tmp_path: Path) -> AsyncIterator[Cli]:
    async with served(front.app) as url:
        yield Cli(front, url, tmp_path)
