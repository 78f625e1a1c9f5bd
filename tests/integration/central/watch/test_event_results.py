"""Results of events for their publisher: by time, by id, page by page, and only its own."""

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from fieldpost.central.operate.notifications import NotificationActions
from fieldpost.central.store.events import results
from fieldpost.central.watch.events.event_results import EventResultReader
from fieldpost.core.delivery.outcome import Evidence, PermanentFailure
from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.result import EventState
from fieldpost.core.ids import derived_id
from fieldpost.core.notification import TargetStatus
from fieldpost.testing import ManualClock
from support import plans
from support.centre import Centre
from support.front import ADMIN
from support.hooks import Hooks
from support.plans import plans_of

SOURCE = "app:shop"
REFUSED = PermanentFailure("422", evidence=Evidence.FAILS)


@pytest.fixture
def hooks(centre: Centre, clock: ManualClock) -> Hooks:
    return Hooks(centre, clock)


@pytest.fixture
def reader(centre: Centre) -> EventResultReader:
    return EventResultReader(centre.store)


@pytest.mark.req("DEC-54")
async def test_results_appear_by_time_and_by_id_with_targets_and_cycles(
    hooks: Hooks, reader: EventResultReader, clock: ManualClock
) -> None:
    subscription = await hooks.subscribe()
    [event_id] = await hooks.publish()
    before = await reader.of(SOURCE, [event_id])
    assert [one.state for one in before.events] == [EventState.PROCESSING]
    assert not before.notifications
    hooks.adapter.answer("billing", REFUSED)
    await hooks.centre.deliver()
    failed = await reader.since(SOURCE, before.as_of - timedelta(seconds=1))
    assert (await reader.of(SOURCE, [event_id])).notifications == failed.notifications
    [ended] = failed.notifications
    assert (ended.event_id, ended.list_name, ended.cycle, ended.status) == (event_id, subscription.name, 1, "parked")
    assert [(t.status, t.cycle) for t in ended.targets] == [(TargetStatus.FAILED, 1)]
    assert ended.targets[0].error
    assert [one.state for one in failed.events] == [EventState.FAILED]
    clock.advance(60)
    seen = await hooks.get(ended.notification_id)
    await NotificationActions(hooks.centre.store, clock).retry(ADMIN, seen.notification_id, seen.version)
    assert (await reader.of(SOURCE, [event_id])).events[0].state is EventState.PROCESSING
    await hooks.centre.deliver()
    sent = await reader.since(SOURCE, failed.as_of - timedelta(seconds=1))
    assert [(t.status, t.cycle) for t in sent.notifications[0].targets] == [(TargetStatus.DELIVERED, 2)]
    assert sent.events[0].state is EventState.SENT


@pytest.mark.req("DEC-54")
async def test_a_publisher_gets_results_of_its_own_events_only(hooks: Hooks, reader: EventResultReader) -> None:
    await hooks.subscribe()
    [event_id] = await hooks.publish()
    await hooks.centre.deliver()
    mine = await reader.since(SOURCE, datetime(1970, 1, 1, tzinfo=UTC))
    assert [one.event_id for one in mine.notifications] == [event_id]
    others = await reader.since("app:other", datetime(1970, 1, 1, tzinfo=UTC))
    assert (others.events, others.notifications) == ((), ())
    by_id = await reader.of("app:other", [event_id])
    assert ([one.state for one in by_id.events], by_id.notifications) == ([EventState.UNKNOWN], ())


async def test_pages_cover_every_ended_notification_once(hooks: Hooks, reader: EventResultReader) -> None:
    await hooks.subscribe()
    ids = await hooks.publish(7)
    for _ in range(3):
        await hooks.centre.deliver()
    for first in (
        partial(reader.since, SOURCE, datetime(1970, 1, 1, tzinfo=UTC)),
        partial(reader.of, SOURCE, ids),
    ):
        found, cursor = [], None
        while True:
            page = await first(limit=3, cursor=cursor)
            found += [one.event_id for one in page.notifications]
            if (cursor := page.next_cursor) is None:
                break
        assert sorted(found) == sorted(ids)


async def test_page_ends_early_after_many_targets(
    hooks: Hooks, reader: EventResultReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "TARGETS_MAX", 2)
    await hooks.subscribe()
    ids = await hooks.publish(5)
    for _ in range(3):
        await hooks.centre.deliver()
    page = await reader.of(SOURCE, ids)
    assert (len(page.notifications), page.next_cursor is None) == (2, False)


async def test_events_without_subscribers_are_sent_and_others_unknown_or_purged(
    hooks: Hooks, reader: EventResultReader
) -> None:
    [nobody, purged] = await hooks.publish(2)
    at = "now()" if hooks.centre.is_postgresql else "0"
    await hooks.centre.execute(
        f"insert into event_tombstones select event_id, source, digest, {at} from events where event_id = '{purged}'",
        f"delete from events where event_id = '{purged}'",
    )
    never = derived_id("never", "published")
    found = await reader.of(SOURCE, [nobody, purged, never, nobody])
    assert [(one.event_id, one.state) for one in found.events] == [
        (nobody, EventState.SENT),
        (purged, EventState.PURGED),
        (never, EventState.UNKNOWN),
    ]


@pytest.mark.parametrize(
    ("ids", "field"), [([], "event_ids"), (["x"] * 501, "event_ids"), (["NOT-AN-ID"], "event_ids[0]")]
)
async def test_bad_ids_are_named(reader: EventResultReader, ids: list[str], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await reader.of(SOURCE, ids)
    assert caught.value.field == field


async def test_results_are_found_by_index_among_many_ended_notifications(centre: Centre) -> None:
    await centre.store.write(plans.fill, "ops", 20_000)
    now = "now()" if centre.is_postgresql else "1767225600000000"
    await centre.execute(
        f"update notifications set status = 'delivered', due_at = null, delivered_at = {now}, terminal_at = {now}",
        "update notifications set event_id = notification_id",
        "analyze",
    )
    since = partial(results.ended_since, source=SOURCE, after=results.FIRST, limit=200)
    for plan in await centre.store.write(plans_of, since):
        assert "ix_notifications_event_ended" in plan, plan
        assert "sort" not in plan.lower().replace("temp b-tree", "sort"), plan
    ids = [derived_id("event", str(n)) for n in range(3)]
    of = partial(results.ended_of, ids=ids, after=results.FIRST[1], limit=200)
    for plan in await centre.store.write(plans_of, of):
        assert "ix_notifications_event_id" in plan, plan
