"""Subscriptions, the real adapter and receivers over hours of a manual clock: rotations, changes, interruptions."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import datetime, tzinfo
from typing import Any, ClassVar

import pytest
import standardwebhooks
import standardwebhooks.webhooks

from fieldpost import verify_webhook
from fieldpost.central.operate.recovery import Recovery
from fieldpost.central.store.events import subscriptions as rows
from fieldpost.core.events.event import notification_id_of
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.signature import InvalidWebhook
from fieldpost.core.events.subscription import SubscriptionState
from fieldpost.testing import ManualClock, ReceivedWebhook
from support.front import ADMIN
from support.hooks import SOURCE
from support.receiving import Receiving, ids_of, open_receiving

FORMATS = ("standard", "cloudevents", "raw")
HOUR_S = 3600


@pytest.fixture
async def hooks(store_url: str, clock: ManualClock) -> AsyncIterator[Receiving]:
    async with open_receiving(store_url, clock) as receiving:
        yield receiving


class ArrivalTime(datetime):
    """Takes the place of the reference library's clock, which knows the present only."""

    arrived: ClassVar[datetime]

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Any:
        return cls.arrived.astimezone(tz)


def is_accepted(secret: str, webhook: ReceivedWebhook) -> bool:
    """Whether the reference library and `verify_webhook` accept the request when it arrives; they must agree."""
    headers, body = dict(webhook.request.headers), webhook.request.body
    ArrivalTime.arrived = webhook.at
    try:
        standardwebhooks.Webhook(secret).verify(body, headers)
    except standardwebhooks.WebhookVerificationError:
        with pytest.raises(InvalidWebhook):
            verify_webhook(secret, headers, body, now=webhook.at)
        return False
    return verify_webhook(secret, headers, body, now=webhook.at).webhook_id == webhook.webhook_id


@pytest.mark.req("WHK-02")
@pytest.mark.dec("DEC-49")
async def test_both_verifiers_accept_every_request_of_a_mixed_run_around_a_rotation(
    hooks: Receiving, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standardwebhooks.webhooks, "datetime", ArrivalTime)
    made = {name: await hooks.subscribe(name, format=name) for name in FORMATS}
    old = {name: hooks.receiver.secret(name) for name in FORMATS}
    new: dict[str, str] = {}

    async def run() -> list[ReceivedWebhook]:
        """The requests of two events, of which the first try fails at every receiver."""
        before = {name: len(hooks.receiver.webhooks(name)) for name in FORMATS}
        for name in FORMATS:
            hooks.receiver.behave(name)
            hooks.receiver.on(name).answer(500).times(1)
        await hooks.publish(2)
        await hooks.deliver(2)
        clock.advance(1200)
        await hooks.deliver(2)
        return [one for name in FORMATS for one in hooks.receiver.webhooks(name)[before[name] :]]

    def accepted_by(secrets: dict[str, str], webhooks: list[ReceivedWebhook]) -> set[bool]:
        return {is_accepted(secrets[one.name], one) for one in webhooks}

    before = await run()
    assert len(before) == 9, "three formats, two events, one of them tried twice"
    assert accepted_by(old, before) == {True}
    for name, subscription in made.items():
        rotated = await hooks.actions.rotate(ADMIN, subscription.subscription_id, 1)
        assert rotated.secret is not None
        new[name] = rotated.secret.reveal()
    during = await run()
    assert (accepted_by(old, during), accepted_by(new, during)) == ({True}, {True})
    clock.advance(24 * HOUR_S)
    for name in FORMATS:
        hooks.receiver.add(name, new[name])
    after = await run()
    assert (accepted_by(old, after), accepted_by(new, after)) == ({False}, {True})
    assert hooks.receiver.forged == []
    for one in (*before, *during, *after):
        body = json.loads(one.request.body)
        expected = {"standard": "orders.created", "cloudevents": "orders.created", "raw": None}[one.name]
        assert body.get("type") == expected
    by_id: dict[str, set[bytes]] = {}
    for one in (*before, *during, *after):
        by_id.setdefault(one.webhook_id, set()).add(one.request.body)
    assert {len(bodies) for bodies in by_id.values()} == {1}, "the same bytes at every attempt"


@pytest.mark.fault(75)
@pytest.mark.req("WHK-02")
async def test_waiting_notifications_use_the_changed_url_auth_and_secret(hooks: Receiving, clock: ManualClock) -> None:
    subscription = await hooks.subscribe("old")
    key = subscription.subscription_id
    hooks.receiver.on("old").answer(503)
    published = await hooks.publish(20)
    await hooks.deliver(12)
    assert (await hooks.breaker(subscription)).health == "blocked"
    calls = len(hooks.receiver.webhooks("old"))
    hooks.receiver.add("new", hooks.receiver.secret("old"))
    auth = {"auth": "header", "auth_header": "X-Api-Key"}
    changed = await hooks.actions.change(
        ADMIN, key, 1, settings={"url": hooks.receiver.url("new"), **auth}, secrets={"auth_secret": "k3y"}
    )
    rotated = await hooks.actions.rotate(ADMIN, key, changed.version)
    assert rotated.secret is not None
    hooks.receiver.add("new", rotated.secret.reveal())
    for _ in range(8):
        await hooks.deliver(10)
        clock.advance(300)
    assert set(hooks.receiver.ids("new")) == ids_of(published, subscription), "no id is lost"
    assert hooks.receiver.second_copies("new") == []
    assert {one.request.headers["x-api-key"] for one in hooks.receiver.webhooks("new")} == {"k3y"}
    assert len(hooks.receiver.webhooks("old")) == calls, "the old URL gets nothing any more"
    assert hooks.receiver.forged == []


@pytest.mark.req("WHK-10")
@pytest.mark.dec("DEC-48")
@pytest.mark.parametrize("cause", ["disabled", "410", "paused", "filter"])
async def test_after_an_hour_of_interruption_under_load_the_receiver_has_exactly_the_matching_events(
    hooks: Receiving, clock: ManualClock, cause: str
) -> None:
    subscription = await hooks.subscribe()
    key = subscription.subscription_id
    since = clock.now()
    matching = await hooks.publish(5)
    await hooks.deliver(2)
    hooks.receiver.on("billing").answer(500).times(3)
    matching += await hooks.publish(3)
    await hooks.deliver()
    match cause:
        case "disabled":
            await hooks.actions.disable(ADMIN, key, 1, "maintenance")
        case "410":
            hooks.receiver.on("billing").answer(410).times(1)
            matching += await hooks.publish(1)
            await hooks.deliver(2)
            assert (await hooks.state(subscription)).state is SubscriptionState.DISABLED
        case "paused":
            await hooks.actions.pause(ADMIN, key, 1)
        case "filter":
            await hooks.actions.change(ADMIN, key, 1, filter=(FilterEntry(topic="orders.cancelled"),))
    for _ in range(12):
        matching += await hooks.publish(10)
        await hooks.publish(5, topic="stock")
        await hooks.deliver()
        clock.advance(300)
    version = (await hooks.state(subscription)).version
    match cause:
        case "disabled" | "410":
            await hooks.actions.enable(ADMIN, key, version, since)
        case "paused":
            await hooks.actions.resume(ADMIN, key, version)
        case "filter":
            await hooks.actions.change(ADMIN, key, version, filter=subscription.filter)
            await Recovery(hooks.centre.store, clock).start(ADMIN, key, since, "the filter is back")
    await hooks.recover()
    clock.advance(HOUR_S)
    matching += await hooks.publish(2)
    await hooks.deliver(3)
    assert set(hooks.receiver.ids("billing")) == ids_of(matching, subscription)
    assert hooks.receiver.second_copies("billing") == []
    assert hooks.receiver.forged == []


@pytest.mark.fault(76)
@pytest.mark.dec("DEC-31", "DEC-43")
async def test_after_100_publications_of_one_event_recover_creates_exactly_the_missing_notifications(
    hooks: Receiving, clock: ManualClock
) -> None:
    since = clock.now()
    [event] = hooks.make_events(1)
    steady = [await hooks.subscribe(f"steady-{number}") for number in range(3)]

    async def publish() -> str:
        return (await hooks.publisher.publish(SOURCE, [event]))[0].verdict

    async def come(number: int) -> str:
        return (await hooks.subscribe(f"late-{number}")).subscription_id

    async def go(number: int) -> None:
        made = await hooks.subscribe(f"gone-{number}")
        await hooks.actions.remove(ADMIN, made.subscription_id, 1)

    started: list[Any] = []
    for number in range(100):
        started.append(publish())
        if number % 10 == 5:
            started += [come(number), go(number)]
    results = await asyncio.gather(*started)
    verdicts = [one for one in results if one in ("accepted", "duplicate")]
    assert sorted(verdicts) == ["accepted", *["duplicate"] * 99]
    ids = {str(one) for (one,) in await hooks.centre.rows("select notification_id from notifications")}
    active = await hooks.centre.store.read(rows.find, states=[SubscriptionState.ACTIVE], limit=500)
    assert len(active) == 13
    expected = {notification_id_of(event.event_id, one.subscription_id) for one in active}
    assert ids >= {notification_id_of(event.event_id, one.subscription_id) for one in steady}
    missing = expected - ids
    recovery = Recovery(hooks.centre.store, clock)
    previewed = 0
    for one in active:
        previewed += (await recovery.preview(ADMIN, one.subscription_id, since)).missing
        await recovery.start(ADMIN, one.subscription_id, since, "check")
    assert previewed == len(missing)
    await hooks.recover(3)
    later = {str(one) for (one,) in await hooks.centre.rows("select notification_id from notifications")}
    assert later - ids == missing, "exactly the missing ones"
    for one in active:
        assert hooks.receiver.ids(one.name) == [notification_id_of(event.event_id, one.subscription_id)]
    assert [await publish()] == ["duplicate"]
