"""Fixtures of the centre's tests.

clock     a clock that stands still until the test moves it
centre    store, ingest and dispatchers on both databases, under that clock, with nothing in the tables
mailing   the same with a channel `mail` (three attempts, a minute apart) and a list `ops`
"""

from collections.abc import AsyncIterator, Iterator

import pytest
import structlog

from fieldpost.testing import ManualClock
from support.centre import Centre, open_centre


@pytest.fixture(autouse=True)
def plain_tracebacks() -> Iterator[None]:
    """The pretty ones take a second each, and these tests make many."""
    # In place: a logger that was used after `logs.configure` keeps the list.
    processors = structlog.get_config()["processors"]
    before = processors[:]
    processors[-1] = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    yield
    processors[:] = before


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def centre(store_url: str, clock: ManualClock) -> AsyncIterator[Centre]:
    async with open_centre(store_url, clock) as opened:
        yield opened


@pytest.fixture
async def mailing(centre: Centre) -> Centre:
    await centre.add_channel()
    await centre.add_list()
    return centre
