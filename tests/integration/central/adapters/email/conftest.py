"""A mail server of its own for each test, and the adapter that talks to it."""

from collections.abc import AsyncIterator

import pytest

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.testing import MailServer


@pytest.fixture
async def server() -> AsyncIterator[MailServer]:
    async with MailServer() as server:
        yield server


@pytest.fixture
async def adapter() -> AsyncIterator[EmailAdapter]:
    adapter = EmailAdapter()
    yield adapter
    await adapter.close()
