"""Recovery of a subscription, and resending one notification."""

import asyncio
from dataclasses import replace

import pytest

from fieldpost.central.operate.bulk_actions import BulkActionRunner
from fieldpost.central.operate.notifications import NotificationActions
from fieldpost.central.operate.recovery import Recovery
from fieldpost.core.actor import Actor, Role
from fieldpost.core.bulk import BulkStatus
from fieldpost.core.delivery.outcome import Evidence, PermanentFailure
from fieldpost.core.errors import Conflict, Denied
from fieldpost.core.events.event import notification_id_of
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.notification import Status
from fieldpost.testing import ManualClock
from support.centre import Centre
from support.front import ADMIN
from support.hooks import FAILED, Hooks

REFUSED = PermanentFailure("422", evidence=Evidence.FAILS)
GONE = PermanentFailure("410", evidence=Evidence.FAILS, is_gone=True)


@pytest.fixture
def hooks(centre: Centre, clock: ManualClock) -> Hooks:
    return Hooks(centre, clock)


async def sweep(hooks: Hooks) -> None:
    await BulkActionRunner(hooks.centre.store, hooks.clock).sweep()
    for _ in range(3):
        await hooks.centre.deliver()


def received(hooks: Hooks) -> list[str]:
    return [e.event.event.event_id for e in hooks.adapter.envelopes if e.event is not None]


@pytest.mark.fault(76)
@pytest.mark.dec("DEC-43", "DEC-48")
async def test_a_younger_subscription_gets_older_events_under_their_derived_ids(
    hooks: Hooks, clock: ManualClock
) -> None:
    start = clock.now()
    [early] = await hooks.publish()
    clock.advance(60)
    since = clock.now()
    wanted = await hooks.publish(3)
    await hooks.publish(2, topic="stock")
    subscription = await hooks.subscribe()
    await hooks.publisher.publish("app:shop", [])
    recovery = Recovery(hooks.centre.store, clock)
    preview = await recovery.preview(ADMIN, subscription.subscription_id, since)
    assert (preview.parked, preview.missing, preview.is_whole, preview.events_from) == (0, 3, True, start)
    action = await recovery.start(ADMIN, subscription.subscription_id, since, "new receiver")
    await sweep(hooks)
    assert sorted(received(hooks)) == sorted(wanted)
    assert early not in received(hooks)
    for event_id in wanted:
        n = await hooks.get(notification_id_of(event_id, subscription.subscription_id))
        assert n.status is Status.DELIVERED
    again = await recovery.start(ADMIN, subscription.subscription_id, since, "once more")
    await sweep(hooks)
    assert len(received(hooks)) == 3, "nothing is missing any more"
    assert again.action_id != action.action_id


@pytest.mark.dec("DEC-48")
@pytest.mark.parametrize("cause", ["disabled", "410", "filter"])
async def test_after_an_interruption_the_receiver_has_exactly_the_matching_events(
    hooks: Hooks, clock: ManualClock, cause: str
) -> None:
    subscription = await hooks.subscribe()
    key = subscription.subscription_id
    since = clock.now()
    sent = await hooks.publish(3)
    await hooks.centre.deliver()
    version = 1
    if cause == "filter":
        other = (FilterEntry(topic="nothing"),)
        await hooks.actions.change(ADMIN, key, version, filter=other)
    elif cause == "410":
        hooks.adapter.answer("billing", GONE)
        sent += await hooks.publish(1)
        await hooks.centre.deliver()
        await hooks.centre.deliver()
    else:
        hooks.adapter.always["billing"] = FAILED
        sent += await hooks.publish(2)
        await hooks.centre.deliver()
        await hooks.actions.disable(ADMIN, key, version)
        await hooks.centre.deliver()
        hooks.adapter.always.clear()
    version = (await hooks.actions.get(key)).version
    sent += await hooks.publish(5)
    clock.advance(3600)
    before = len(received(hooks))
    if cause == "filter":
        await hooks.actions.change(ADMIN, key, version, filter=subscription.filter)
        await Recovery(hooks.centre.store, clock).start(ADMIN, key, since, "filter restored")
    else:
        await hooks.actions.enable(ADMIN, key, version, since)
    await sweep(hooks)
    for event_id in sent:
        assert (await hooks.get(notification_id_of(event_id, key))).status is Status.DELIVERED
    assert set(received(hooks)) == set(sent)
    assert len(received(hooks)) - before == len(sent) - 3, "those delivered before get no second copy"


@pytest.mark.dec("DEC-48")
async def test_recovery_retries_parked_notifications_and_can_be_cancelled(hooks: Hooks, clock: ManualClock) -> None:
    subscription = await hooks.subscribe()
    since = clock.now()
    hooks.adapter.always["billing"] = REFUSED
    await hooks.publish(4)
    await hooks.centre.deliver()
    hooks.adapter.always.clear()
    recovery = Recovery(hooks.centre.store, clock)
    assert (await recovery.preview(ADMIN, subscription.subscription_id, since)).parked == 4
    action = await recovery.start(ADMIN, subscription.subscription_id, since, "fixed")
    runner = BulkActionRunner(hooks.centre.store, clock)
    cancelled = await runner.cancel(ADMIN, action.action_id)
    assert cancelled.status is BulkStatus.CANCELLED
    await sweep(hooks)
    assert await hooks.centre.rows("select distinct status from notifications") == [("parked",)]
    await recovery.start(ADMIN, subscription.subscription_id, since, "fixed")
    await sweep(hooks)
    assert await hooks.centre.rows("select distinct status from notifications") == [("delivered",)]


async def test_a_purged_notification_is_not_created_again(hooks: Hooks, clock: ManualClock) -> None:
    subscription = await hooks.subscribe()
    since = clock.now()
    [event_id] = await hooks.publish()
    await hooks.centre.deliver()
    notification_id = notification_id_of(event_id, subscription.subscription_id)
    await hooks.centre.execute(
        "insert into tombstones (notification_id, source_site_id, digest, status, terminal_at, purged_at)"
        " select notification_id, source_site_id, digest, status, terminal_at, terminal_at from notifications",
        "delete from targets",
        "delete from attempts",
        "delete from notifications",
    )
    recovery = Recovery(hooks.centre.store, clock)
    assert (await recovery.preview(ADMIN, subscription.subscription_id, since)).missing == 0
    await recovery.start(ADMIN, subscription.subscription_id, since, "again")
    await sweep(hooks)
    assert received(hooks) == [event_id], notification_id


@pytest.mark.dec("DEC-43")
async def test_after_concurrent_publications_recover_creates_exactly_what_is_missing(
    hooks: Hooks, clock: ManualClock
) -> None:
    since = clock.now()

    async def come_and_go(name: str) -> str:
        made = await hooks.subscribe(name)
        changed = await hooks.actions.disable(ADMIN, made.subscription_id, 1)
        await hooks.actions.enable(ADMIN, made.subscription_id, changed.version, None)
        return made.subscription_id

    results = await asyncio.gather(*(hooks.publish(5) for _ in range(20)), *(come_and_go(f"s{n}") for n in range(6)))
    published = [event_id for one in results if isinstance(one, list) for event_id in one]
    keys = [one for one in results if isinstance(one, str)]
    for key in keys:
        await Recovery(hooks.centre.store, clock).start(ADMIN, key, since, "check")
    await sweep(hooks)
    found = {str(i) for (i,) in await hooks.centre.rows("select notification_id from notifications")}
    assert found == {notification_id_of(event_id, key) for event_id in published for key in keys}


async def test_recovery_needs_an_operator_and_a_subscription_that_gets_notifications(
    hooks: Hooks, clock: ManualClock
) -> None:
    subscription = await hooks.subscribe()
    recovery = Recovery(hooks.centre.store, clock)
    with pytest.raises(Denied):
        await recovery.start(Actor("v", Role.VIEWER), subscription.subscription_id, clock.now(), "x")
    await hooks.actions.disable(ADMIN, subscription.subscription_id, 1)
    with pytest.raises(Conflict, match="gets no notifications"):
        await recovery.start(ADMIN, subscription.subscription_id, clock.now(), "x")


@pytest.mark.req("WHK-10")
@pytest.mark.dec("DEC-48")
@pytest.mark.parametrize("is_delivered", [True, False], ids=["delivered", "parked"])
async def test_a_notification_is_resent_under_its_id(hooks: Hooks, is_delivered: bool) -> None:
    subscription = await hooks.subscribe()
    if not is_delivered:
        hooks.adapter.answer("billing", REFUSED)
    sent = await hooks.one(subscription)
    await hooks.centre.deliver()
    seen = await hooks.get(sent)
    assert seen.status is (Status.DELIVERED if is_delivered else Status.PARKED)
    actions = NotificationActions(hooks.centre.store, hooks.clock)
    pending = await actions.resend(ADMIN, sent, seen.version)
    assert (pending.status, pending.cycle) == (Status.PENDING, 2)
    with pytest.raises(Conflict):
        await actions.resend(ADMIN, sent, pending.version)
    await hooks.centre.deliver()
    assert hooks.adapter.sent() == [sent, sent]
    assert (await hooks.get(sent)).status is Status.DELIVERED
    assert replace(seen, version=0).notification_id == sent


async def test_a_notification_to_a_list_cannot_be_resent(mailing: Centre) -> None:
    sent = await mailing.send()
    await mailing.deliver()
    actions = NotificationActions(mailing.store, mailing.clock)
    with pytest.raises(Conflict, match="a notification to a list cannot be resent"):
        await actions.resend(ADMIN, sent, (await mailing.get(sent)).version)
