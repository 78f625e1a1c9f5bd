"""Fixtures of the front's tests.

clock    a clock that stands still until the test moves it
front    the application on both databases, under that clock
"""

from collections.abc import AsyncIterator

import pytest

from fieldpost.testing import ManualClock
from support.front import Front, open_front


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def front(store_url: str, clock: ManualClock) -> AsyncIterator[Front]:
    async with open_front(store_url, clock) as opened:
        yield opened
