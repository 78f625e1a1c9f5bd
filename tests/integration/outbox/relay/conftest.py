"""Fixtures of the relay's tests.

app         the database of an application, with the outbox's tables
relaying    the same with a central that serves HTTP, and a token for the application
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fieldpost.outbox.tables import OutboxDatabase
from support.outbox_apps import AppDatabase, Relaying, open_relaying

FIXTURES = {OutboxDatabase.POSTGRESQL: "empty_pg_url", OutboxDatabase.MARIADB: "mariadb_url"}


@pytest.fixture(params=list(OutboxDatabase))
def app(request: pytest.FixtureRequest, tmp_path: Path) -> AppDatabase:
    fixture = FIXTURES.get(request.param)
    return AppDatabase(request.getfixturevalue(fixture) if fixture else f"sqlite:///{tmp_path / 'application.db'}")


@pytest.fixture
async def relaying(app: AppDatabase, sqlite_url: str, tmp_path: Path) -> AsyncIterator[Relaying]:
    async with open_relaying(app, sqlite_url, tmp_path) as opened:
        yield opened
