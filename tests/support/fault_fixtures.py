"""Fixtures of the fault tests, long and short.

clock            a clock that stands still until the test moves it
mail             a mail server that behaves until told otherwise; of each mail it keeps the headers
cluster          central nodes to be started on a fresh PostgreSQL database of the shared server
durable_cluster  the same on a PostgreSQL server of the test's own (`pg_server`), to be stopped and crashed
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fieldpost.testing import MailServer, ManualClock
from fieldpost.testing.mail import Limits
from support.cluster import Cluster
from support.postgres import PostgresServer


@pytest.fixture
async def mail() -> AsyncIterator[MailServer]:
    async with MailServer(keep_raw=False, limits=Limits(mails_kept=500_000)) as server:
        yield server


@pytest.fixture
async def cluster(pg_url: str, tmp_path: Path, mail: MailServer) -> AsyncIterator[Cluster]:
    async with Cluster(pg_url, tmp_path, mail) as nodes:
        yield nodes


@pytest.fixture
async def durable_cluster(pg_server: PostgresServer, tmp_path: Path, mail: MailServer) -> AsyncIterator[Cluster]:
    async with Cluster(pg_server.url(), tmp_path, mail) as nodes:
        yield nodes


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()
