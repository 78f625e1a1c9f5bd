"""A subscriber's receiver must answer a signed test before anything else is sent to it; with real receivers."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.ingest.notices import NoticePublisher
from fieldpost.central.operate.receiver_test import RATE
from fieldpost.central.operate.subscriptions import SubscriptionActions
from fieldpost.central.store.events import notices, topics
from fieldpost.core.delivery.outcome import Delivered, PermanentFailure
from fieldpost.core.errors import Conflict
from fieldpost.core.events.event import notification_id_of
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.notice import BLOCKED, Notice
from fieldpost.core.events.subscription import Subscription, SubscriptionState
from fieldpost.core.events.topic import Topic
from fieldpost.core.notification import Status
from fieldpost.testing import HttpServer, ManualClock
from support.centre import ScriptedAdapter
from support.front import ADMIN, OWNER, SUBSCRIBER
from support.receiving import Receiving, open_receiving


@pytest.fixture
async def hooks(store_url: str, clock: ManualClock) -> AsyncIterator[Receiving]:
    async with open_receiving(store_url, clock) as receiving:
        await receiving.centre.store.write(topics.add, Topic(name="orders.created", owners=(OWNER,)), clock.now())
        yield receiving


async def subscribe(hooks: Receiving, name: str = "billing", **settings: object) -> Subscription:
    """As a subscriber."""
    given = {"url": hooks.receiver.url(name), **settings}
    secrets = {"auth_secret": "sesame"} if settings else {}
    made = await hooks.actions.add(SUBSCRIBER, name, None, [FilterEntry(topic="orders.*")], given, secrets)
    assert made.secret is not None
    hooks.receiver.add(name, made.secret.reveal())
    return made.subscription


@pytest.mark.dec("DEC-51", "DEC-81")
@pytest.mark.threat(17)
async def test_nothing_but_tests_reaches_a_receiver_before_it_answers_one(hooks: Receiving) -> None:
    subscription = await subscribe(hooks)
    [event_id] = await hooks.publish()
    waiting = notification_id_of(event_id, subscription.subscription_id)
    hooks.receiver.on("billing").answer(500)
    for _ in range(3):
        await hooks.deliver()
    assert hooks.receiver.webhooks("billing") == []
    held = await hooks.get(waiting)
    assert (held.status, held.retry_count) == (Status.PENDING, 0)
    assert "has not answered a signed test with 2xx yet" in (held.held_reason or "")
    tested = await hooks.actions.test(SUBSCRIBER, subscription.subscription_id)
    assert not isinstance(tested.outcome, Delivered)
    assert len(hooks.receiver.webhooks("billing")) == 1, "a test has no quick tries"
    await hooks.deliver()
    assert len(hooks.receiver.webhooks("billing")) == 1
    hooks.receiver.behave("billing")
    tested = await hooks.actions.test(SUBSCRIBER, subscription.subscription_id)
    assert isinstance(tested.outcome, Delivered)
    assert (await hooks.state(subscription)).state is SubscriptionState.ACTIVE
    await hooks.deliver(4)
    assert waiting in hooks.receiver.ids("billing")
    assert hooks.receiver.forged == []
    actions = await hooks.centre.rows("select request_summary from audit where actor = 'subscriber' order by sequence")
    assert [one for (one,) in actions] == ["subscription.add", *["subscription.test"] * 2, "subscription.verify"]


@pytest.mark.dec("DEC-81")
async def test_rows_are_held_again_after_a_subscriber_moves_the_receiver(hooks: Receiving) -> None:
    subscription = await subscribe(hooks)
    await hooks.actions.test(SUBSCRIBER, subscription.subscription_id)
    version = (await hooks.state(subscription)).version
    elsewhere = {"url": hooks.receiver.url("victim")}
    await hooks.actions.change(SUBSCRIBER, subscription.subscription_id, version, settings=elsewhere)
    await hooks.publish()
    await hooks.deliver(3)
    assert [request for request in hooks.receiver.server.requests if request.path == "/victim"] == []


@pytest.mark.dec("DEC-81")
@pytest.mark.parametrize("auth", [{}, {"auth": "header", "auth_header": "X-Key"}])
async def test_a_receiver_may_have_to_reject_a_forged_test(hooks: Receiving, auth: dict[str, object]) -> None:
    options = WebhookOptions(allow_plain=True, require_rejection=True)
    hooks.actions = SubscriptionActions(
        hooks.centre.store, hooks.centre.adapters, hooks.clock, hooks.centre.keyring, options
    )
    async with HttpServer() as anybody:  # answers 200 to every request
        careless = await subscribe(hooks, "careless", **auth)
        again = {"auth_secret": "sesame"} if auth else {}
        there = {"url": f"http://127.0.0.1:{anybody.port}/in"}
        await hooks.actions.change(SUBSCRIBER, careless.subscription_id, 1, settings=there, secrets=again)
        tested = await hooks.actions.test(SUBSCRIBER, careless.subscription_id)
        assert isinstance(tested.outcome, PermanentFailure)
        assert "must reject a request without credentials" in tested.outcome.error
        assert (await hooks.state(careless)).state is SubscriptionState.UNVERIFIED
    careful = await subscribe(hooks, "careful", **auth)
    tested = await hooks.actions.test(SUBSCRIBER, careful.subscription_id)
    assert isinstance(tested.outcome, Delivered)
    assert "wrong signature" in "\n".join(tested.transcript)
    (forged,) = hooks.receiver.forged
    assert "sesame" not in str(forged.headers), "it came without credentials"
    assert (await hooks.state(careful)).is_verified


@pytest.mark.threat(17)
async def test_tests_of_one_owner_have_a_rate_and_those_of_administrators_do_not(hooks: Receiving) -> None:
    first, second = await subscribe(hooks, "first"), await subscribe(hooks, "second")
    for _ in range(RATE.burst):
        await hooks.actions.test(SUBSCRIBER, first.subscription_id)
    with pytest.raises(Conflict) as refused:
        await hooks.actions.test(SUBSCRIBER, second.subscription_id)
    assert refused.value.code == "subscription.tests"
    await hooks.actions.test(ADMIN, second.subscription_id)
    other = replace(SUBSCRIBER, name="bob", subscription_owner="bob")
    made = await hooks.actions.add(other, "x", None, [FilterEntry()], {"url": hooks.receiver.url("first")})
    await hooks.actions.test(other, made.subscription.subscription_id)
    hooks.clock.advance(RATE.interval.total_seconds() + 1)
    if hooks.centre.store.now() is not None:  # PostgreSQL goes by its own clock
        await hooks.actions.test(SUBSCRIBER, second.subscription_id)
    assert len(hooks.receiver.webhooks("first")) == RATE.burst


@pytest.mark.dec("DEC-52", "DEC-81")
async def test_a_subscriber_gets_the_notices_about_its_own_subscriptions_only(hooks: Receiving) -> None:
    asking = [FilterEntry(topic="fieldpost.subscription.*")]
    url = {"url": hooks.receiver.url("notices")}
    await hooks.actions.add(SUBSCRIBER, "asks", None, asking, url)
    own = await subscribe(hooks, "own")
    theirs = (await hooks.actions.add(ADMIN, "theirs", "other", asking, url)).subscription
    for subscription in (own, theirs):
        notice = Notice(BLOCKED, subscription.subscription_id, {"error": "503", "failures": 10})
        await hooks.centre.store.write(notices.add, [notice], hooks.clock.now())
    await NoticePublisher(hooks.centre.store, hooks.clock, hooks.publisher).sweep()
    about = "select n.list_name, e.attributes from notifications n join events e on e.event_id = n.event_id"
    got = {
        (str(name), "own" if own.subscription_id in str(of) else "theirs")
        for name, of in await hooks.centre.rows(about)
    }
    assert got == {("asks", "own"), ("theirs", "own")}, "and no notice goes to the subscription that it is about"


@pytest.mark.dec("DEC-81")
@pytest.mark.threat(17)
async def test_answer_after_a_change_of_the_url_verifies_nothing(hooks: Receiving) -> None:
    subscription = await subscribe(hooks)
    id_ = subscription.subscription_id
    adapter = ScriptedAdapter("webhook")
    hooks.actions._adapters = {"webhook": adapter}

    async def change_meanwhile(_: object) -> Delivered:
        await hooks.actions.change(SUBSCRIBER, id_, 1, settings={"url": hooks.receiver.url("victim")})
        return Delivered()

    adapter.answer("billing", change_meanwhile)
    with pytest.raises(Conflict) as refused:
        await hooks.actions.test(SUBSCRIBER, id_)
    assert refused.value.code == "subscription.changed"
    state = await hooks.state(subscription)
    assert (state.state, state.is_verified) == (SubscriptionState.UNVERIFIED, False)


async def test_subscribers_add_a_limited_number_of_subscriptions_at_once_too(hooks: Receiving) -> None:
    hooks.actions._options = WebhookOptions(allow_plain=True, per_owner_max=3)
    first = await subscribe(hooks, "first")
    made = await asyncio.gather(*(subscribe(hooks, f"n{n}") for n in range(5)), return_exceptions=True)
    refused = [one for one in made if isinstance(one, Conflict)]
    assert [one.code for one in refused] == ["subscription.many"] * 3
    await hooks.actions.add(ADMIN, "one more", OWNER, [FilterEntry()], {"url": hooks.receiver.url("first")})
    await hooks.actions.remove(SUBSCRIBER, first.subscription_id, 1)
    with pytest.raises(Conflict):
        await subscribe(hooks, "too-many")
