"""Calls and writes of a script whose targets are down, with the agent as the process it is; central is never there."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from subprocess import PIPE, Popen

import asyncpg
import pytest
import trustme

from fieldpost import Site
from fieldpost.core.checks import Check, CheckVerdict
from fieldpost.core.ids import CallId
from fieldpost.core.sites.message import CallStatus
from fieldpost.site.repair.doctor import examine
from fieldpost.testing import HttpServerThread
from support.postgres import PostgresServer
from support.site_folders import make_site

TABLE = "CREATE TABLE counts (call_id uuid PRIMARY KEY, unit text NOT NULL, n int, at timestamptz)"
STATEMENT = "INSERT INTO counts VALUES (:call_id, :unit, :n, :at) ON CONFLICT DO NOTHING"  # an attempt may have arrived
TRIES = "retry_interval_s = 0.1\nretries_max = 2\ntimeout_s = 5\n"


@contextmanager
def agent_of(folder: Path) -> Iterator[Popen[bytes]]:
    program = "from fieldpost.cli.main import main; main()"
    agent = Popen([sys.executable, "-c", program, "site", "--folder", str(folder)], stdout=PIPE, stderr=PIPE)
    try:
        yield agent
    finally:
        agent.terminate()
        agent.communicate(timeout=30)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    make_site(folder).close()
    return folder


def define(folder: Path, text: str) -> None:
    settings = (folder / "site.toml").read_text().partition("[external")[0]
    (folder / "site.toml").write_text(settings + text)


def until(is_so: Callable[[], bool], what: str, deadline_s: float = 30.0) -> None:
    ends_at = time.monotonic() + deadline_s
    while not is_so():
        assert time.monotonic() < ends_at, f"waited {deadline_s:g} s for {what}"
        time.sleep(0.02)


def wait_for(site: Site, operations: list[CallId], status: CallStatus) -> None:
    until(lambda: all(site.tracking.status(one).status is status for one in operations), status.value)


def query(url: str, sql: str) -> list[tuple[object, ...]]:
    async def run() -> list[tuple[object, ...]]:
        connection = await asyncpg.connect(url)
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    return asyncio.run(run())


@pytest.mark.req("SF-04", "SF-06", "SF-09", "SF-10", "SF-17", "TRK-07")
def test_call_to_a_system_down_for_too_long_parks_and_arrives_once_on_retry(
    folder: Path, pg_server: PostgresServer
) -> None:
    query(pg_server.url(), TABLE)
    with HttpServerThread() as server:
        define(
            folder,
            f'[external.erp]\nurl = "{server.url}"\n{TRIES}\n[database.plant]\nurl = "{pg_server.url()}"\n{TRIES}\n'
            f'statements.count = "{STATEMENT}"\n',
        )
        server.stop()
        pg_server.stop(signal.SIGQUIT)
        with Site.open(folder) as site, agent_of(folder):
            call = site.external("erp").call("POST", "/orders", json={"n": 1})
            values = {"unit": "press-2", "n": 7, "at": "2026-11-15T08:14:00Z"}
            write = site.database("plant").write("count", values)
            wait_for(site, [call, write], CallStatus.PARKED)
            for operation in (call, write):
                record = site.tracking.status(operation)
                assert record.retry_count == 2
                assert record.last_error
                assert record.terminal_at is None
            server.start()
            pg_server.start()
            for operation in (call, write):
                assert site._buffer.retry(operation, datetime.now(UTC), by="operator")
            wait_for(site, [call, write], CallStatus.DELIVERED)
            assert site._buffer.depth().waiting == {}
        (request,) = server.requests
        assert (request.body, request.headers["idempotency-key"]) == (b'{"n":1}', call)
        at = datetime(2026, 11, 15, 8, 14, tzinfo=UTC)
        ((call_id, *rest),) = query(pg_server.url(), "SELECT * FROM counts")
        assert (str(call_id), rest) == (write, ["press-2", 7, at])


@pytest.mark.req("SF-19")
def test_a_definition_that_is_removed_leaves_its_calls_parked_and_manageable(folder: Path) -> None:
    definition = '[external.erp]\nurl = "{url}"\nretry_interval_s = 0.1\nretries_max = 0\n'
    with HttpServerThread() as server:
        define(folder, definition.format(url=server.url))
        server.on().answer(503).times(2)
        with Site.open(folder) as site:
            kept, given_up = (site.external("erp").call("POST", f"/{name}") for name in ("kept", "given-up"))
        define(folder, "")
        with Site.open(folder) as site, agent_of(folder):
            wait_for(site, [kept, given_up], CallStatus.PARKED)
            assert "no longer defines the external system 'erp'" in (site.tracking.status(kept).last_error or "")
            assert site._buffer.discard(given_up, datetime.now(UTC))
            assert site.tracking.status(given_up).status is CallStatus.DISCARDED
        # Defined again, it can be sent after all.
        define(folder, definition.format(url=server.url))
        with Site.open(folder) as site, agent_of(folder):
            assert site._buffer.retry(kept, datetime.now(UTC))
            wait_for(site, [kept], CallStatus.DELIVERED)
        assert [request.path for request in server.requests] == ["/kept", "/given-up", "/kept"]


def test_doctor_reports_an_unreadable_authority(folder: Path) -> None:
    settings = (folder / "site.toml").read_text()
    (folder / "site.toml").write_text(settings.replace("[central]\n", '[central]\nca_file = "ca.pem"\n'))

    def authority() -> Check:
        (found,) = [one for one in examine(folder, datetime.now(UTC)).diagnosis.checks if one.name == "authority"]
        return found

    assert (authority().verdict, "ca.pem" in authority().detail) == (CheckVerdict.FAILING, True)
    trustme.CA().cert_pem.write_to_path(folder / "ca.pem")
    assert authority().verdict is CheckVerdict.OK


def test_definition_without_its_secret_is_reported_and_delays_nothing_else(folder: Path) -> None:
    with HttpServerThread() as server:
        tries = "retry_interval_s = 0.1\nretries_max = 0\n"
        define(
            folder,
            f'[external.erp]\nurl = "{server.url}"\nsecret_headers = {{X-Key = "erp.secret"}}\n{tries}'
            f'[external.other]\nurl = "{server.url}"\n{tries}',
        )
        failing = [check for check in examine(folder, datetime.now(UTC)).diagnosis.checks if check.name != "agent"]
        (check,) = [check for check in failing if check.verdict is CheckVerdict.FAILING]
        assert check.name == "definition erp"
        assert "erp.secret" in check.detail
        with Site.open(folder) as site, agent_of(folder) as agent:
            erp = site.external("erp").call("POST", "/erp")
            other = site.external("other").call("POST", "/other")
            assert site.tracking.status(other).is_delivered
            assert site.tracking.status(erp).status is CallStatus.RETRYING
            until(lambda: site.tracking.status(erp).retry_count > 0, "the agent's first try")
            secret = folder / "erp.secret"
            descriptor = os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600)
            os.write(descriptor, b"hunter2-hunter2\n")
            os.close(descriptor)
            wait_for(site, [erp], CallStatus.DELIVERED)
            agent.terminate()
            said = b"".join(agent.communicate(timeout=30)).decode()
        assert "definition.unusable" in said
        assert "hunter2" not in said
        assert server.requests[-1].headers["x-key"] == "hunter2-hunter2"
