"""Which subscriptions get an event, and which of their notifications go first when slots are few."""

import asyncio
import os
from collections import Counter

import pytest

from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.core.events.event import Event
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.ids import new_id
from fieldpost.core.notification import Status
from fieldpost.testing import ManualClock
from support.centre import Centre, Hanging
from support.front import ADMIN
from support.hooks import FAILED, SOURCE, Hooks


@pytest.fixture
def hooks(centre: Centre, clock: ManualClock) -> Hooks:
    return Hooks(centre, clock)


async def subscribe(hooks: Hooks, name: str, *entries: FilterEntry) -> None:
    await hooks.actions.add(ADMIN, name, "shop", entries, {"url": f"https://{name}.example/in"})


@pytest.mark.req("WHK-01")
@pytest.mark.dec("DEC-31")
async def test_each_subscription_gets_exactly_the_actions_that_its_filter_names(hooks: Hooks) -> None:
    """An application publishes each change of an entity: its creation, its changes and its end."""
    wanted = {
        "creations": ("create",),
        "changes": ("update",),
        "ends": ("destroy",),
        "births-and-deaths": ("create", "destroy"),
        "everything": (None,),
        "nothing": ("archive",),
    }
    for name, actions in wanted.items():
        await subscribe(hooks, name, *(FilterEntry(topic="customers", action=action) for action in actions))
    published = [
        Event(
            event_id=new_id(hooks.clock.now(), os.urandom(10)),
            topic="customers",
            source=SOURCE,
            action=action,
            resource=f"customers/{number}",
            payload=f'{{"customer": {number}}}',
        )
        for number in range(3)
        for action in ("create", "update", "destroy")
    ]
    verdicts = await hooks.publisher.publish(SOURCE, published)
    assert {one.verdict for one in verdicts} == {"accepted"}
    await hooks.centre.deliver()
    got: dict[str, list[str]] = {name: [] for name in wanted}
    for envelope in hooks.adapter.envelopes:
        assert envelope.event is not None
        got[envelope.list_name].append(envelope.event.event.event_id)
    for name, actions in wanted.items():
        expected = [one.event_id for one in published if one.action in actions or actions == (None,)]
        assert sorted(got[name]) == sorted(expected), name
    assert not got["nothing"]


@pytest.mark.req("WHK-06", "WHK-22")
@pytest.mark.dec("DEC-09", "DEC-47")
async def test_new_webhooks_do_not_wait_behind_due_retries_or_mails(mailing: Centre, clock: ManualClock) -> None:
    """Few slots, and more due retries than slots, which were there first: three quarters go to the new ones.

    All slots of lists are taken by mails that hang.
    """
    mail = mailing.adapter
    hooks = Hooks(mailing, clock)
    for number in range(10):
        await subscribe(hooks, f"old-{number}", FilterEntry(topic="orders.*"))
        hooks.adapter.always[f"old-{number}"] = FAILED
    await hooks.publish(3)
    await hooks.centre.deliver()
    statuses = await hooks.centre.rows("select status, count(*) from notifications group by status")
    assert statuses == [(Status.RETRYING.value, 30)]
    clock.advance(16 * 60)
    await subscribe(hooks, "new", FilterEntry(topic="returns"))
    await hooks.publish(20, "returns")
    hanging = Hanging()
    hooks.adapter.always = dict.fromkeys(["new", *(f"old-{n}" for n in range(10))], hanging)
    mail.always["ops"] = hanging
    await mailing.send_many(5)
    before = hooks.adapter.count
    dispatcher = hooks.centre.dispatcher(webhooks=WebhookOptions(slots=8), slots=2, slots_per_key=8, grace_s=0.01)
    async with dispatcher.running():
        sweeping = asyncio.create_task(dispatcher.sweep())
        await mail.called(2)
        await hooks.adapter.called(before + 8)
        started = Counter(e.list_name.partition("-")[0] for e in hooks.adapter.envelopes[before:])
        assert started == {"new": 6, "old": 2}
        assert mail.count == 2, "the slots of lists"
        hanging.let_go()
        await asyncio.wait({sweeping})
        await hooks.centre.drain(dispatcher)
    assert await hooks.centre.rows("select status, count(*) from notifications group by status") == [
        (Status.DELIVERED.value, 55)
    ]
