"""Following: statuses and history from the results at central."""

from datetime import timedelta
from typing import Any

import pytest

from fieldpost.central.operate.notifications import NotificationActions
from fieldpost.core.delivery.outcome import Evidence, PermanentFailure
from fieldpost.core.events.event import notification_id_of
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.route import EventRoute
from fieldpost.core.events.template import Template
from support.front import ADMIN
from support.outbox_apps import TOPIC, AppDatabase, Relaying

REFUSED = PermanentFailure("422 not for us", evidence=Evidence.FAILS)


def history(app: AppDatabase, columns: str = "status, cycle, recipient, channel, error") -> list[tuple[Any, ...]]:
    return app.query(f"select {columns} from notification_history order by recorded_at, cycle")


@pytest.mark.req("EVT-05", "EVT-06", "EVT-14", "EVT-16", "DEC-53", "DEC-54", "DEC-59")
async def test_a_row_is_processing_until_every_notification_is_delivered(app: AppDatabase, relaying: Relaying) -> None:
    await relaying.hooks.subscribe()
    [event_id] = app.add()
    async with relaying.running():
        await app.until(lambda: app.row(event_id, "published_at") != (None,))
        assert app.row(event_id) == ("PROCESSING",)
        assert history(app) == []
        await relaying.deliver()
        await app.until_status("SENT", [event_id])
        await app.until(lambda: len(history(app)) == 1)
    [row] = history(app, "status, cycle, channel, service, message, subject, event_type, error, sent_at is not null")
    assert row[:5] == ("sent", 1, "webhook", "pump-3", "Pump 3 stopped")
    assert (row[6], row[7], bool(row[8])) == ("orders.created", None, True)


@pytest.mark.req("EVT-07", "DEC-53", "DEC-59")
async def test_a_parked_notification_fails_the_row_and_a_retry_at_central_sends_it(
    app: AppDatabase, relaying: Relaying
) -> None:
    subscription = await relaying.hooks.subscribe()
    relaying.hooks.adapter.answer("billing", REFUSED)
    [event_id] = app.add()
    async with relaying.running():
        await app.until(lambda: app.row(event_id, "published_at") != (None,))
        await relaying.deliver()
        await app.until_status("FAILED", [event_id])
        error, retries = app.row(event_id, "last_error, retries")
        assert error.startswith("notification.parked: ")
        assert retries == 0, "retries count publishing only"
        parked = await relaying.front.centre.get(notification_id_of(event_id, subscription.subscription_id))
        actions = NotificationActions(relaying.front.centre.store, relaying.front.clock)
        relaying.front.clock.advance(60)
        await actions.retry(ADMIN, parked.notification_id, parked.version)
        await relaying.deliver()
        await app.until_status("SENT", [event_id])
    assert [(row[0], row[1]) for row in history(app)] == [("failed", 1), ("sent", 2)]
    assert "422" in history(app)[0][4]
    assert app.row(event_id, "last_error") == (None,)


@pytest.mark.req("DEC-54")
async def test_results_from_before_a_relay_started_are_found_by_id(app: AppDatabase, relaying: Relaying) -> None:
    await relaying.hooks.subscribe()
    ids = app.add(3)
    async with relaying.running(follow_s=3600):
        await app.until(lambda: all(app.row(one, "published_at") != (None,) for one in ids))
    for _ in range(3):
        await relaying.deliver()
    relaying.front.clock.advance(3600)
    async with relaying.running():
        await app.until_status("SENT", ids)
    assert len(history(app)) == 3


@pytest.mark.req("DEC-54", "DEC-59")
async def test_a_result_reported_to_two_relays_is_one_row_of_history(app: AppDatabase, relaying: Relaying) -> None:
    await relaying.hooks.subscribe()
    async with relaying.running(), relaying.running():
        ids = app.add(5)
        await app.until(lambda: all(app.row(one, "published_at") != (None,) for one in ids))
        for _ in range(3):
            await relaying.deliver()
        await app.until_status("SENT", ids)
    async with relaying.running():
        await app.until(lambda: len(history(app)) == 5)
    assert len(history(app)) == 5


async def test_events_that_central_lost_with_its_database_are_published_again(
    app: AppDatabase, relaying: Relaying
) -> None:
    await relaying.hooks.subscribe()
    [event_id] = app.add()
    # As after a restore of central from a copy that is older than this event.
    app.execute("update event_outbox set status = 'PROCESSING', published_at = created_at")
    async with relaying.running():
        await app.until(lambda: app.row(event_id, "claim_token, published_at is not null") == (1, True))
        await relaying.deliver()
        await app.until_status("SENT", [event_id])
    assert await relaying.events() == [event_id]


async def route_to_a_list(relaying: Relaying) -> None:
    await relaying.front.centre.add_channel()
    await relaying.front.centre.add_list("ops", "ann@example.org")
    route = EventRoute(route_id="", name="ops", filter=(FilterEntry(topic=TOPIC),), list_name="ops")
    await relaying.front.operate.routes.add(ADMIN, route)


@pytest.mark.req("EVT-10", "DEC-30", "DEC-58")
async def test_rows_without_a_template_are_sent_when_it_is_saved(app: AppDatabase, relaying: Relaying) -> None:
    await route_to_a_list(relaying)
    ids = app.add(2)
    async with relaying.running():
        await app.until_status("TEMPLATE_NOT_FOUND", ids)
        assert app.row(ids[0], "retries, last_error") == (0, "template.not_found: a matching route has no template")
        template = Template(topic=TOPIC, subject="{{ payload.message }}", body="")
        assert (await relaying.front.operate.templates.save(ADMIN, template, None)).waiting == 2
        await relaying.deliver()
        await app.until_status("SENT", ids)
    assert app.row(ids[0], "retries, last_error") == (0, None)
    sent = ("sent", "ann@example.org", "email", "Pump 3 stopped")
    assert history(app, "status, recipient, channel, subject") == [sent] * 2


@pytest.mark.req("EVT-07", "DEC-53", "DEC-58")
async def test_a_notification_that_was_parked_at_once_fails_the_row_with_its_error(
    app: AppDatabase, relaying: Relaying
) -> None:
    await route_to_a_list(relaying)
    await relaying.front.operate.templates.save(ADMIN, Template(topic=TOPIC, subject="{{ payload.x }}", body=""), None)
    [event_id] = app.add()
    async with relaying.running():
        await app.until_status("FAILED", [event_id])
    error, retries, is_published = app.row(event_id, "last_error, retries, published_at is not null")
    assert error.startswith("notification.parked: ")
    assert "`payload.x` is undefined" in error
    assert (retries, bool(is_published)) == (0, True)


async def test_a_row_that_other_programs_wrote_or_changed_delays_no_other(app: AppDatabase, relaying: Relaying) -> None:
    await relaying.hooks.subscribe()
    [odd] = app.add(payload=r'{"message": "a\u0000b 停止 💡", "service": "\u0000"}')
    [archived] = app.add()
    async with relaying.running():
        await app.until(lambda: all(app.row(one, "published_at") != (None,) for one in (odd, archived)))
        app.execute(f"update event_outbox set status = 'ARCHIVED' where event_outbox_id = '{archived}'")
        for _ in range(2):
            await relaying.deliver()
        await app.until_status("SENT", [odd])
        await app.until(lambda: history(app, "message, service") == [("a\ufffdb 停止 💡", "\ufffd")])
    assert app.row(archived) == ("ARCHIVED",)


@pytest.mark.req("EVT-17", "EVT-18", "DEC-59", "DEC-84")
async def test_each_change_of_health_is_one_row_and_a_rejected_token_counts_no_attempt(
    app: AppDatabase, relaying: Relaying
) -> None:
    await relaying.hooks.subscribe()
    [first] = app.add()
    async with relaying.running():
        await app.until(lambda: app.row(first, "published_at") != (None,))
        await app.until(lambda: app.query("select status from system_health_logs") == [("ok",)])
        rotated = await relaying.front.operate.tokens.rotate(ADMIN, "shop", overlap=timedelta(0))
        [waiting] = app.add()
        await app.until(lambda: len(app.query("select 1 from system_health_logs")) == 2)
        assert app.row(waiting, "status in ('PENDING', 'PROCESSING'), retries, last_error") == (True, 0, None)
        relaying.token_file.write_text(rotated.token)
        await app.until(lambda: app.row(waiting, "published_at") != (None,))
        for _ in range(3):
            await relaying.deliver()
        await app.until_status("SENT", [first, waiting])
        await app.until(lambda: len(app.query("select 1 from system_health_logs")) == 3)
    logged = app.query("select status, message from system_health_logs order by last_checked_at")
    assert [status for status, _ in logged] == ["ok", "failing", "ok"]
    assert "relay.denied" in logged[1][1]
    tasks = {row[0]: row[1:] for row in app.query("select task_name, task_type, next_run_at from background_tasks")}
    assert {"relay.publish", "relay.follow", "relay.purge"} <= tasks.keys()
    assert all(row[0] == "relay" and row[1] is not None for row in tasks.values())


async def test_switched_off_tables_stay_empty(app: AppDatabase, relaying: Relaying) -> None:
    await relaying.hooks.subscribe()
    ids = app.add()
    async with relaying.running(history=False, tasks=False, health_log=False):
        await app.until(lambda: app.row(ids[0], "published_at") != (None,))
        await relaying.deliver()
        await app.until_status("SENT", ids)
    for table in ("notification_history", "background_tasks", "system_health_logs"):
        assert app.query(f"select 1 from {table}") == [], table
