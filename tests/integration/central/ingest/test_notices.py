"""Notices about subscriptions: published once, and to those alone who ask and may read them."""

import json
from dataclasses import replace

import pytest

from fieldpost.central.ingest.notices import NoticePublisher
from fieldpost.central.store.events import events, notices, subscriptions, topics
from fieldpost.core.events.event import Event
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.notice import BLOCKED, Notice
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.events.topic import Topic
from fieldpost.testing import ManualClock
from support.centre import Centre
from support.front import ADMIN
from support.hooks import Hooks

ASKING = (FilterEntry(topic="fieldpost.subscription.*"),)


@pytest.fixture
def hooks(centre: Centre, clock: ManualClock) -> Hooks:
    return Hooks(centre, clock)


async def subscribe(hooks: Hooks, name: str, owner: str, *entries: FilterEntry, is_restricted: bool = False) -> str:
    given = {"url": f"https://{name}.example/"}
    made = (await hooks.actions.add(ADMIN, name, owner, entries or ASKING, given)).subscription
    if is_restricted:
        restricted: Subscription = replace(made, is_restricted=True)
        assert await hooks.centre.store.write(subscriptions.change, restricted, hooks.clock.now())
    return made.subscription_id


async def got(hooks: Hooks) -> set[str]:
    return {str(name) for (name,) in await hooks.centre.rows("select list_name from notifications")}


async def give_notice(hooks: Hooks, subscription_id: str) -> None:
    notice = Notice(BLOCKED, subscription_id, {"error": "503", "failures": 10})
    await hooks.centre.store.write(notices.add, [notice], hooks.clock.now())


def publisher(hooks: Hooks) -> NoticePublisher:
    return NoticePublisher(hooks.centre.store, hooks.clock, hooks.publisher)


@pytest.mark.dec("DEC-52", "DEC-81")
async def test_notice_goes_to_subscribers_that_may_read_it_and_never_to_its_subject(hooks: Hooks) -> None:
    about = await subscribe(hooks, "about", "shop")
    await subscribe(hooks, "asks", "other")
    await subscribe(hooks, "wildcard", "other", FilterEntry(topic="*"))
    await subscribe(hooks, "same-owner", "shop", is_restricted=True)
    await subscribe(hooks, "another-owner", "other", is_restricted=True)
    await give_notice(hooks, about)
    assert await publisher(hooks).sweep() == 1
    assert await got(hooks) == {"asks", "same-owner"}


@pytest.mark.dec("DEC-52")
async def test_a_notice_is_published_once_even_if_its_row_is_found_again(hooks: Hooks) -> None:
    about = await subscribe(hooks, "about", "shop")
    await subscribe(hooks, "asks", "other")
    await give_notice(hooks, about)
    [stored] = await hooks.centre.store.read(notices.first, 10)
    await publisher(hooks).sweep()
    assert await hooks.centre.store.read(notices.first, 10) == []
    row = f"insert into notices select '{stored.event_id}', '{BLOCKED}', '{about}', "
    row += '\'{"error": "503", "failures": 10}\', created_at from events'
    await hooks.centre.execute(row)
    await publisher(hooks).sweep()
    assert await hooks.centre.rows("select count(*) from notifications") == [(1,)]
    recorded = await hooks.centre.store.read(events.get, stored.event_id)
    assert recorded is not None
    assert json.loads(recorded.event.payload) == {
        "subscription_id": about,
        "name": "about",
        "owner": "shop",
        "error": "503",
        "failures": 10,
    }


async def test_an_application_cannot_publish_notices(hooks: Hooks) -> None:
    await subscribe(hooks, "asks", "other")
    forged = Event(event_id="00000000-0000-7000-8000-000000000001", topic=BLOCKED, source="app:shop", payload="{}")
    [verdict] = await hooks.publisher.publish("app:shop", [forged])
    assert (verdict.verdict, verdict.code) == ("rejected", "topic.reserved")
    assert await got(hooks) == set()


@pytest.mark.dec("DEC-81")
async def test_a_restricted_wildcard_matches_only_topics_that_name_its_owner(hooks: Hooks) -> None:

    for name, owners in {"open": ("*",), "theirs": ("shop",), "closed": ()}.items():
        await hooks.centre.store.write(topics.add, Topic(name=name, owners=owners), hooks.clock.now())
    await subscribe(hooks, "restricted", "shop", FilterEntry(topic="*"), is_restricted=True)
    for name in ("open", "theirs", "closed", "unregistered"):
        await hooks.publish(topic=name)
    found = await hooks.centre.rows("select subject from notifications order by subject")
    assert found == [("open",), ("theirs",)]
