"""Fifty writers and three relays for a minute, one relay killed every second, on every kind of database."""

from pathlib import Path

import pytest

from fieldpost.outbox.tables import OutboxDatabase
from support.outbox_apps import AppDatabase, open_relaying
from support.outbox_ordeal import check, endure

pytestmark = pytest.mark.timeout(600)
FIXTURES = {OutboxDatabase.POSTGRESQL: "empty_pg_url", OutboxDatabase.MARIADB: "mariadb_url"}


@pytest.mark.req("EVT-20")
@pytest.mark.dec("DEC-01", "DEC-30", "DEC-54")
@pytest.mark.parametrize("kind", list(OutboxDatabase))
async def test_a_minute_of_killed_relays_loses_and_repeats_no_event(
    request: pytest.FixtureRequest, kind: OutboxDatabase, sqlite_url: str, tmp_path: Path
) -> None:
    fixture = FIXTURES.get(kind)
    app = AppDatabase(request.getfixturevalue(fixture) if fixture else f"sqlite:///{tmp_path / 'application.db'}")
    async with open_relaying(app, sqlite_url, tmp_path) as relaying:
        await check(relaying, await endure(relaying, tmp_path, 60.0))
