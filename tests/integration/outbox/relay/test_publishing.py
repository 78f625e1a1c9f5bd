"""The relay publishes rows and records the verdicts, on every kind of database."""

import json
from typing import Any

import pytest

from fieldpost.outbox.doctor.examine import examine_outbox
from fieldpost.outbox.relay.sqlite import newest_sqlite
from fieldpost.outbox.tables import OutboxDatabase
from support.outbox_apps import AppDatabase, Relaying


@pytest.mark.req("EVT-03", "EVT-06", "EVT-15", "EVT-20", "DEC-30", "DEC-53", "DEC-54")
async def test_a_committed_row_becomes_one_event_with_its_fields_and_is_sent(
    app: AppDatabase, relaying: Relaying
) -> None:
    payload = '{ "order" : 17,  "euro": "€", "n": 1.0e2 }'
    more = {"action": "create", "resource": "order/17", "attributes": '{"region": "North"}', "correlation_id": "c-1"}
    [event_id] = app.add(payload=payload, **more)
    async with relaying.running():
        await app.until_status("SENT", [event_id])
    async with relaying.front.client("shop" if "shop" in relaying.front.tokens else "admin") as client:
        shown = await client.get(f"/api/v1/events/{event_id}")
    assert f'"payload":{payload},' in shown.text
    detail: dict[str, Any] = shown.json()
    assert (detail["source"], detail["topic"], detail["attributes"]) == (
        "app:shop",
        "orders.created",
        {"region": "North"},
    )
    assert (detail["action"], detail["resource"], detail["correlation_id"]) == ("create", "order/17", "c-1")
    retries, error, owner, lease = app.row(event_id, "retries, last_error, claim_owner, lease_until")
    assert (retries, error, owner, lease) == (0, None, None, None)


@pytest.mark.fault(20)
@pytest.mark.bad_input(42)
@pytest.mark.req("EVT-07", "EVT-08", "EVT-09", "DEC-53", "DEC-54", "DEC-84")
async def test_a_rejected_row_fails_with_its_code_while_its_neighbours_proceed(
    app: AppDatabase, relaying: Relaying
) -> None:
    good = app.add(3)
    [unregistered] = app.add(event_type="nobody.registered")
    [bad_type] = app.add(event_type="no topic name")
    [bad_attributes] = app.add(attributes='{"region": 7}')
    poison = [unregistered, bad_type, bad_attributes]
    if app.kind is OutboxDatabase.SQLITE:  # the others have a type that accepts only JSON
        for payload in ("{}, {", b'{"service": "\xff"}'):
            poison += app.add(payload=payload)
    if app.kind is not OutboxDatabase.MARIADB:  # it accepts 32 levels
        poison += app.add(payload=f'{{"a": {"[" * 3000}{"]" * 3000}}}')
    async with relaying.running(retry="fixed:1h:0"):
        await app.until_status("SENT", good)
        await app.until_status("FAILED", poison)
    assert app.row(unregistered, "retries, last_error") == (
        1,
        "topic.unknown: topic 'nobody.registered' is not registered",
    )
    assert app.row(unregistered, "last_attempt_at") != (None,)
    codes = [app.row(one, "last_error")[0].partition(":")[0] for one in poison[1:]]
    assert codes == ["topic.name", *["event.payload"] * (len(poison) - 2)]
    assert sorted(await relaying.events()) == sorted(good)


@pytest.mark.dec("DEC-84")
async def test_a_rejected_row_is_published_when_its_topic_is_registered_later(
    app: AppDatabase, relaying: Relaying
) -> None:
    [event_id] = app.add(event_type="orders.late")
    async with relaying.running(retry="fixed:0.2s:0"):
        await app.until(lambda: app.row(event_id, "status, retries > 0")[0] == "FAILED")
        async with relaying.front.client("admin") as client:
            assert (await client.put("/api/v1/topics/orders.late", json={})).status_code in (200, 201)
        await app.until_status("SENT", [event_id])
    assert app.row(event_id, "last_error") == (None,)


async def test_a_row_is_not_published_before_its_time(app: AppDatabase, relaying: Relaying) -> None:
    [later] = app.add(due_at="2100-01-01 00:00:00")
    [now] = app.add()
    async with relaying.running():
        await app.until_status("SENT", [now])
    assert app.row(later) == ("PENDING",)
    assert await relaying.events() == [now]


async def test_large_payload_is_published_in_a_separate_request(app: AppDatabase, relaying: Relaying) -> None:
    large = json.dumps({"text": "x" * 250_000})
    ids = [*app.add(20, payload=large), *app.add(5)]
    async with relaying.running():
        await app.until_status("SENT", ids)
    assert sorted(await relaying.events()) == sorted(ids)


@pytest.mark.parametrize("app", [OutboxDatabase.SQLITE], indirect=True)
async def test_a_payload_that_was_written_as_bytes_is_published(app: AppDatabase, relaying: Relaying) -> None:
    [event_id] = app.add(payload='{"euro": "€"}'.encode())
    async with relaying.running():
        await app.until_status("SENT", [event_id])
    assert await relaying.front.centre.rows("select payload from events") == [('{"euro": "€"}',)]


@pytest.mark.bad_input(42)
@pytest.mark.req("EVT-09")
@pytest.mark.parametrize("app", [OutboxDatabase.SQLITE], indirect=True)
async def test_rows_with_values_of_foreign_types_stop_no_other_row(app: AppDatabase, relaying: Relaying) -> None:
    """SQLite stores what it is given, whatever the type of the column."""
    old = "due_at = '2026-01-01', created_at = '2026-01-01'"
    for change in ("x'00ff'", "17", "cast(x'ff61' as text)", "x'01890a5dac96774bbf1faabbccddeeff'"):
        [foreign] = app.add()
        app.execute(f"update event_outbox set event_outbox_id = {change}, {old} where event_outbox_id = '{foreign}'")
    odd = {}
    for name in ("event_type", "action", "resource", "attributes", "correlation_id", "order_key"):
        [odd[name]] = app.add(**{name: b"\xff\x00 a"})
    for name in ("retries", "claim_token"):
        [odd[name]] = app.add(**{name: "many"})
    ids = app.add(3)
    rejected = {"event_type", "attributes"}
    async with relaying.running(retry="fixed:1h:0", batch_size=4):
        await app.until_status("SENT", ids)
        await app.until_status("FAILED", ["17", *(event_id for name, event_id in odd.items() if name in rejected)])
        await app.until_status("SENT", [event_id for name, event_id in odd.items() if name not in rejected])
        await app.until_status("SENT", app.add())
    assert app.query("select count(*) from event_outbox where status = 'PENDING'") == [(3,)]
    diagnosis = await examine_outbox(relaying.options(), sqlite=newest_sqlite())
    assert "3 rows with an event_outbox_id that is not a UUID as text" in " ".join(c.detail for c in diagnosis.checks)


@pytest.mark.dec("DEC-54")
@pytest.mark.parametrize("app", [OutboxDatabase.POSTGRESQL], indirect=True)
async def test_relays_share_the_work_behind_a_transaction_pooler(
    app: AppDatabase, pooled_pg_url: str, relaying: Relaying
) -> None:
    """Each transaction may get another session, and the hints that the relays listen for never arrive."""
    keyed = [app.add(order_key="a")[0] for _ in range(3)]
    ids = keyed + app.add(20)
    async with relaying.running(database=pooled_pg_url), relaying.running(database=pooled_pg_url):
        await app.until_status("SENT", ids)
        late = app.add()
        await app.until_status("SENT", late)
    assert sorted(await relaying.events()) == sorted(ids + late)
    assert {row[0] for row in app.query("select retries from event_outbox")} == {0}
    arrived = await relaying.front.centre.rows("select event_id from events order by rowid")
    assert [str(row[0]) for row in arrived if str(row[0]) in keyed] == keyed
