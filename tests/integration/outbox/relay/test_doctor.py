"""`fieldpost outbox doctor` names what is wrong with an outbox, its relay and its central, and what to do."""

import asyncio
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fieldpost.core.checks import Check, CheckVerdict
from fieldpost.outbox import Outbox
from fieldpost.outbox.doctor.examine import examine_outbox
from fieldpost.outbox.relay.options import RelayOptions
from fieldpost.outbox.relay.sqlite import newest_sqlite
from fieldpost.outbox.tables import OutboxDatabase
from support.commands import fieldpost_here
from support.outbox_apps import AppDatabase, Relaying
from support.ports import closed_port

OLD = {
    OutboxDatabase.POSTGRESQL: "clock_timestamp() - interval '20 days'",
    OutboxDatabase.SQLITE: "strftime('%Y-%m-%d %H:%M:%f000', 'now', '-20 days')",
    OutboxDatabase.MARIADB: "utc_timestamp(6) - interval 20 day",
}


async def checks(options: RelayOptions) -> list[Check]:
    return list((await examine_outbox(options, sqlite=newest_sqlite())).checks)


async def findings(options: RelayOptions) -> dict[str, str]:
    """The details of the checks that are not OK, by name; several of one name are joined."""
    found: dict[str, str] = {}
    for check in await checks(options):
        if check.verdict is not CheckVerdict.OK:
            found[check.name] = found.get(check.name, "") + check.detail + "\n"
    return found


async def test_healthy_outbox_has_no_findings(app: AppDatabase, relaying: Relaying) -> None:
    async with relaying.running():
        sent = app.add(2)
        await app.until_status("SENT", sent)
        await app.until(lambda: app.query("select task_name from background_tasks where status = 'ok'"))
        found = await findings(relaying.options())
        assert found.pop("clock").startswith("central's clock is"), "central has a clock of its own in this test"
        assert found == {}


async def test_missing_relay_and_stuck_rows_are_named(app: AppDatabase, relaying: Relaying) -> None:
    ids = app.add(3)
    app.execute(f"update event_outbox set created_at = {OLD[app.kind]}, due_at = {OLD[app.kind]}")
    found = await findings(relaying.options())
    assert found["relay"] == "no relay has ever run on this database; start one: fieldpost relay\n"
    assert "3 rows due for up to 20 d and claimed by no relay" in found["stuck"]
    async with relaying.running():
        await app.until_status("SENT", ids)
        await app.until(lambda: app.query("select task_name from background_tasks"))
    app.execute(f"update background_tasks set last_run_at = {OLD[app.kind]}")
    app.execute(f"update event_outbox set updated_at = {OLD[app.kind]}")
    found = await findings(relaying.options())
    assert "no relay has run for 20 d" in found["relay"]
    assert "SENT rows are up to 20 d old" in found["purge"]
    assert "stuck" not in found


async def test_poison_rows_are_named_by_code_with_advice(app: AppDatabase, relaying: Relaying) -> None:
    [unknown] = app.add(event_type="nobody.registered")
    [unanswered] = app.add(order_key="pump-3")
    app.add(2, order_key="pump-3")
    [parked, missing] = app.add(2)
    async with relaying.running(retry="fixed:1h:0"):
        await app.until_status("FAILED", [unknown])
        await app.until_status("SENT", [parked, missing])
    app.execute(f"update event_outbox set status = 'FAILED' where event_outbox_id = '{parked}'")
    app.execute(f"update event_outbox set status = 'TEMPLATE_NOT_FOUND' where event_outbox_id = '{missing}'")
    app.execute("update event_outbox set status = 'PENDING', published_at = null where order_key is not null")
    app.execute(
        "update event_outbox set status = 'FAILED', last_error = 'relay.unanswered: no answer'"
        f" where event_outbox_id = '{unanswered}'"
    )
    found = await findings(relaying.options())
    assert f"1 row is not published because of topic.unknown (such as {unknown})" in found["poison"]
    assert "fieldpost topics save NAME" in found["poison"]
    assert f"2 rows of order key pump-3 waiting for {unanswered}, which was not answered" in found["stuck"]
    assert "1 row with a notification that is parked or discarded" in found["parked"]
    assert f"1 row is of type orders.created without a template (such as {missing})" in found["templates"]


async def test_incomplete_tables_are_named(app: AppDatabase, relaying: Relaying) -> None:
    on = " on event_outbox" if app.kind is OutboxDatabase.MARIADB else ""
    app.execute(f"drop index ix_event_outbox_status{on}")
    app.execute(f"drop index ix_event_outbox_sent{on}")
    app.execute("create index ix_event_outbox_sent on event_outbox (created_at)")
    app.execute("drop table notification_history")
    if app.kind is OutboxDatabase.POSTGRESQL:
        app.execute("alter table event_outbox alter column payload type jsonb")
        app.execute("alter table event_outbox alter column created_at type timestamp")
    if app.kind is OutboxDatabase.MARIADB:
        app.execute("alter table event_outbox engine = Aria")
    found = await findings(relaying.options())
    assert "the index ix_event_outbox_status on event_outbox is missing: Outbox.create_tables" in found["indexes"]
    assert "the index ix_event_outbox_sent is not on (" in found["indexes"]
    assert "the table notification_history is missing" in found["tables"]
    if app.kind is OutboxDatabase.POSTGRESQL:
        assert "event_outbox.payload is jsonb" in found["tables"]
        assert "created_at is timestamp without time zone" in found["tables"]
    if app.kind is OutboxDatabase.MARIADB:
        assert "event_outbox has the engine Aria, which has no transactions" in found["tables"]


@pytest.mark.req("DEC-85")
async def test_jsonb_column_stays_and_works(app: AppDatabase, relaying: Relaying) -> None:
    if app.kind is not OutboxDatabase.POSTGRESQL:
        return
    app.execute("alter table event_outbox alter column payload type jsonb")
    connection = app.connect()
    Outbox.create_tables(connection)
    event_id = Outbox.add(connection, "orders.created", {"b": 1, "a": "Größe"})
    connection.commit()
    connection.close()
    async with relaying.running():
        await app.until_status("SENT", [event_id])
    assert "jsonb" in (await findings(relaying.options()))["tables"]


async def test_missing_tables_are_one_finding_and_not_an_error(app: AppDatabase, relaying: Relaying) -> None:
    app.execute("drop table event_outbox")
    found = await findings(relaying.options())
    assert "the table event_outbox is missing: Outbox.create_tables adds them" in found["tables"]


async def test_rejected_token_and_unreachable_central_are_told_apart(app: AppDatabase, relaying: Relaying) -> None:
    relaying.token_file.write_text("fp_api_wrong")
    found = await findings(relaying.options())
    assert "central answered 401" in found["token"]
    assert "fieldpost tokens add NAME --role publisher" in found["token"]
    relaying.token_file.unlink()
    assert "cannot read" in (await findings(relaying.options()))["token"]
    found = await findings(relaying.options(url=f"http://127.0.0.1:{closed_port()}", token="fp_api_x", token_file=""))
    assert "cannot connect to central" in found["central"]


async def test_clock_of_central_is_compared_with_this_machine(app: AppDatabase, relaying: Relaying) -> None:
    before = datetime.now(UTC)
    found = (await findings(relaying.options()))["clock"]
    behind = [(now - relaying.front.clock.now()).total_seconds() / 86_400 for now in (before, datetime.now(UTC))]
    assert any(found.startswith(f"central's clock is {days:.0f} d behind this machine") for days in behind)


async def test_unreachable_database_is_a_failing_check(tmp_path: Path) -> None:
    for url in (f"sqlite:///{tmp_path / 'none.db'}", f"postgresql://postgres@127.0.0.1:{closed_port()}/x"):
        found = await findings(RelayOptions(database=url, token="x"))
        assert "the application's database is not available" in found["database"]
        assert "check relay.database, and that the database runs" in found["database"]
        assert found["central"] == "relay.url is not set: set it to the address of central\n"


async def test_command_prints_the_checks_and_exits_with_9(app: AppDatabase, relaying: Relaying) -> None:
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("FIELDPOST_")},
        "FIELDPOST_RELAY__DATABASE": app.url,
        "FIELDPOST_RELAY__URL": relaying.url,
        "FIELDPOST_RELAY__TOKEN_FILE": str(relaying.token_file),
    }

    def run(*options: str) -> Any:
        return fieldpost_here("outbox", "doctor", *options, environ=environ)

    ran = await asyncio.to_thread(run, "--json")
    assert ran.returncode == 9, ran.stderr
    answer = json.loads(ran.stdout)
    assert answer["status"] == "failing"
    assert {"name": "tables", "status": "ok", "detail": "tables, columns and indexes are complete"} in answer["checks"]
    ran = await asyncio.to_thread(run)
    assert b"no relay has ever run on this database" in ran.stdout
