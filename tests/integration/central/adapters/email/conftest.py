"""A mail server of its own for each test, and the adapter that talks to it: once with PIPELINING, once without."""

from collections.abc import AsyncIterator

import pytest

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.testing import MailServer


@pytest.fixture(params=[True, False], ids=["pipelined", "one_by_one"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[MailServer]:
    async with MailServer() as server:
        if not request.param:
            server.extensions.remove("PIPELINING")
        yield server


@pytest.fixture
async def adapter() -> AsyncIterator[EmailAdapter]:
    adapter = EmailAdapter()
    yield adapter
    await adapter.close()
