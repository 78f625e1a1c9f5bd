"""The relay as a process and as a thread: start, stop, fork, hints, purge, reports, and actions on rows."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from fieldpost.core.errors import ConfigError, Conflict, InvalidInput
from fieldpost.outbox import Relay, RelayOptions
from fieldpost.outbox.relay.relay import open_database
from fieldpost.outbox.relay.row_actions import discard_rows, retry_rows
from fieldpost.outbox.relay.sqlite import newest_sqlite
from support.commands import fieldpost_here
from support.outbox_apps import DEADLINE_S, AppDatabase, Relaying, open_relaying
from support.relay_process import RelayProcess

LONG_AGO = "2020-01-01 00:00:00"


async def test_a_process_publishes_and_stops_in_order(app: AppDatabase, relaying: Relaying, tmp_path: Path) -> None:
    ids = app.add(3)
    async with RelayProcess(relaying.options(), tmp_path) as relay:
        await app.until_status("SENT", ids)
        assert await relay.stop() == 0, relay.log
        assert "Traceback" not in relay.log
    assert app.query("select 1 from event_outbox where claim_owner is not null") == []


async def test_a_thread_publishes_stops_and_starts_again(app: AppDatabase, relaying: Relaying) -> None:
    relay = Relay(relaying.options(), sqlite=newest_sqlite())
    for _ in range(2):
        await asyncio.to_thread(relay.start)
        with pytest.raises(Conflict):
            relay.start()
        ids = app.add(2)
        relay.wake()
        await app.until_status("SENT", ids)
        assert await asyncio.to_thread(relay.stop)
        assert not relay.is_running


async def test_a_forked_child_has_no_relay_and_may_start_its_own(app: AppDatabase, relaying: Relaying) -> None:
    relay = Relay(relaying.options(), sqlite=newest_sqlite())
    await asyncio.to_thread(relay.start)
    child = os.fork()
    if child == 0:
        os._exit(7 if not relay.is_running and relay.stop() else 1)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert relay.is_running
    assert await asyncio.to_thread(relay.stop)


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("postgresql://app@localhost/app", "asyncpg", "relay-postgresql"),
        ("mariadb://app@localhost/app", "pymysql", "relay-mariadb"),
    ],
)
def test_a_missing_driver_is_named_with_its_install_line(
    monkeypatch: pytest.MonkeyPatch, url: str, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError) as caught:
        open_database(RelayOptions(database=url))
    assert caught.value.hint == f'pip install "fieldpost[{extra}]"'


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"database": ""}, "settings.missing"),
        ({"database": "oracle://x/y"}, "settings.database"),
        ({"url": ""}, "settings.missing"),
        ({"url": "http://central.example"}, "central.plain"),
        ({"token_file": "/nowhere/token"}, "settings.token_file"),
    ],
)
async def test_settings_that_cannot_work_are_named_at_the_start(
    app: AppDatabase, relaying: Relaying, options: dict[str, Any], code: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        await asyncio.to_thread(Relay(relaying.options(**options), sqlite=newest_sqlite()).start)
    assert caught.value.code == code


async def test_missing_tables_are_named_at_the_start(app: AppDatabase, relaying: Relaying) -> None:
    app.execute("drop table event_outbox")
    with pytest.raises(ConfigError, match="outbox ddl") as caught:
        await asyncio.to_thread(Relay(relaying.options(), sqlite=newest_sqlite()).start)
    assert caught.value.code == "outbox.table"


async def test_a_hint_of_postgresql_wakes_the_relay(empty_pg_url: str, sqlite_url: str, tmp_path: Path) -> None:
    app = AppDatabase(empty_pg_url)
    async with open_relaying(app, sqlite_url, tmp_path) as relaying, relaying.running(poll_s=3600):
        await app.until(lambda: app.query("select 1 from pg_stat_activity where query ilike 'listen%'") != [])
        await app.until_status("SENT", app.add(2))


async def test_old_sent_rows_and_history_are_purged_and_all_others_stay(app: AppDatabase, relaying: Relaying) -> None:
    recent = app.add(status="SENT")
    with app.transaction() as cursor:
        for _ in range(1200):  # more than one batch
            app.insert(cursor, status="SENT", updated_at=LONG_AGO)
    kept = app.add(
        status="TEMPLATE_NOT_FOUND", updated_at=LONG_AGO, published_at=LONG_AGO, due_at="2100-01-01 00:00:00"
    )
    kept += app.add(status="FAILED", updated_at=LONG_AGO, due_at="2100-01-01 00:00:00")
    for table, key, time in (
        ("notification_history", "notification_history_id", "recorded_at"),
        ("system_health_logs", "system_health_log_id", "last_checked_at"),
    ):
        for day in ("2020-01-01 00:00:00", "2100-01-01 00:00:00"):
            app.execute(f"insert into {table} ({key}, {time}) values ('{os.urandom(16).hex()}', '{day}')")
    async with relaying.running():
        await app.until(lambda: app.statuses().get("SENT") == 1)
        await app.until(lambda: app.query("select count(*) from notification_history") == [(1,)])
        await app.until(
            lambda: app.query("select count(*) from system_health_logs where last_checked_at < '2021-01-01'") == [(0,)]
        )
    assert app.row(recent[0]) == ("SENT",)
    assert [app.row(one) for one in kept] == [("TEMPLATE_NOT_FOUND",), ("FAILED",)]


async def test_the_relay_reports_its_open_rows_to_central(app: AppDatabase, relaying: Relaying) -> None:
    app.add(4, due_at="2100-01-01 00:00:00")
    found: list[tuple[object, ...]] = []
    async with relaying.running(), asyncio.timeout(DEADLINE_S):
        while found != [("app:shop", 4)]:
            found = await relaying.front.centre.rows("select source, open_count from outbox_reports")


async def test_failed_rows_are_retried_at_once_and_rows_are_discarded_by_id(
    app: AppDatabase, relaying: Relaying
) -> None:
    options = relaying.options()
    later = {"due_at": "2100-01-01 00:00:00"}
    failed = app.add(3, status="FAILED", retries=1, **later)
    [pending] = app.add(**later)
    [sent] = app.add(status="SENT")
    result = await retry_rows(options, [failed[0], pending])
    assert (result.changed, result.left) == (1, (pending,))
    assert (await retry_rows(options, [])).changed == 3
    gone = await discard_rows(options, [failed[1], pending, sent])
    assert (gone.changed, gone.left) == (2, (sent,))
    for bad in ([], ["x"]):
        with pytest.raises(InvalidInput):
            await discard_rows(options, bad)
    async with relaying.running():
        await app.until_status("SENT", [failed[0], failed[2]])
    assert sorted(await relaying.events()) == sorted([failed[0], failed[2]])


def test_the_commands_retry_and_discard_report_changed_and_unchanged_rows(app: AppDatabase, tmp_path: Path) -> None:
    environ = {**os.environ, "FIELDPOST_RELAY__DATABASE": app.url}
    [failed] = app.add(status="FAILED", retries=1, due_at="2100-01-01 00:00:00")
    [sent] = app.add(status="SENT")
    retried = fieldpost_here("outbox", "retry", failed, sent, environ=environ, folder=tmp_path)
    assert (retried.returncode, retried.stdout.decode().splitlines()) == (
        0,
        ["1 row is due now.", f"Unchanged (not a failed row): {sent}"],
    )
    discarded = fieldpost_here("outbox", "discard", failed, "--json", environ=environ, folder=tmp_path)
    assert json.loads(discarded.stdout) == {"changed": 1, "left": []}
    assert fieldpost_here("outbox", "discard", "x", environ=environ, folder=tmp_path).returncode == 3
    assert app.statuses() == {"SENT": 1}
