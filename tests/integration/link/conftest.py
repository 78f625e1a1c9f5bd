"""Fixtures of the link's tests.

clock    a clock that stands still until the test moves it
front    the application on both databases, under that clock
line     the same served on loopback as central serves it; afterwards it must be alive, and have logged no bug
"""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from fieldpost.testing import ManualClock
from support.front import Front, open_front, served
from support.line import Line, without_bugs


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def front(store_url: str, clock: ManualClock) -> AsyncIterator[Front]:
    async with open_front(store_url, clock) as opened:
        yield opened


@pytest.fixture
async def line(front: Front, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Line]:
    with without_bugs(caplog):
        async with served(front.app) as url, aiohttp.ClientSession(base_url=url) as http:
            opened = Line(front, url, http)
            yield opened
            assert await opened.is_alive()
