"""Templates from saving to delivery: versions, missing ones, failed renderings, and Retry."""

import os
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from fieldpost.central.operate.notifications import NotificationActions
from fieldpost.central.operate.templates import TemplateActions
from fieldpost.central.rendering import waiting
from fieldpost.central.rendering.waiting import WaitingEvents
from fieldpost.central.store.events import events, results, routes, topics, withheld
from fieldpost.central.store.events.events import EventNotification
from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.core.events.event import Event
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.result import EventState
from fieldpost.core.events.route import EventRoute
from fieldpost.core.events.template import Template
from fieldpost.core.events.topic import Topic
from fieldpost.core.ids import new_id
from fieldpost.core.notification import Severity, Status
from support.centre import Centre
from support.front import ADMIN, OPERATOR

SOURCE = "app:monitor"
DOWN = "SERVICE_DOWN"


class Desk:
    """A centre with a topic, a list and a route, and the actions on templates."""

    def __init__(self, centre: Centre) -> None:
        self.centre = centre
        self.templates = TemplateActions(centre.store, centre.adapters, centre.clock, centre.pool)
        self.notifications = NotificationActions(centre.store, centre.clock)

    async def save(self, subject: str, body: str = "", seen: int | None = None, **more: str) -> int:
        template = Template(topic=DOWN, subject=subject, body=body, **more)
        return (await self.templates.save(ADMIN, template, seen)).waiting

    async def publish(self, *payloads: str) -> list[str]:
        made = [
            Event(event_id=new_id(self.centre.clock.now(), os.urandom(10)), topic=DOWN, source=SOURCE, payload=one)
            for one in payloads
        ]
        await self.centre.ingest.publisher.publish(SOURCE, made)
        return [one.event_id for one in made]

    async def notification(self, event_id: str) -> EventNotification:
        [found] = await self.centre.store.read(events.notifications_of, event_id, 10)
        return found

    async def state(self, event_id: str) -> EventState:
        [found] = await self.centre.store.read(results.states, SOURCE, [event_id])
        return found.state

    def sent(self) -> list[tuple[str, str]]:
        return [(one.subject, one.body) for one in self.centre.adapter.envelopes]


@pytest.fixture
async def desk(centre: Centre) -> AsyncIterator[Desk]:
    await centre.add_channel()
    await centre.add_list("ops", "ann@example.org")
    await centre.store.write(topics.add, Topic(name=DOWN), centre.clock.now())
    route_id = new_id(centre.clock.now(), os.urandom(10))
    route = EventRoute(route_id=route_id, name="down", filter=(FilterEntry(topic=DOWN),), list_name="ops")
    await centre.store.write(routes.add, route, centre.clock.now())
    return Desk(centre)


@pytest.mark.req("DEC-58", "DEC-86")
async def test_an_event_is_rendered_at_publishing_and_keeps_its_version(desk: Desk) -> None:
    await desk.save("{{ payload.service }} is down", "{{ event.topic }}: {{ payload.service }}")
    await desk.publish('{"service": "api"}')
    await desk.save("changed", "", seen=1)
    await desk.publish('{"service": "db"}')
    [one, two] = await desk.centre.rows("select subject, template_version from notifications order by created_at, 2")
    assert [tuple(one), tuple(two)] == [("api is down", 1), ("changed", 2)]
    await desk.centre.deliver()
    assert sorted(desk.sent()) == [("api is down", "SERVICE_DOWN: api"), ("changed", "")]


@pytest.mark.bad_input(40)
@pytest.mark.req("DEC-58")
async def test_a_failed_rendering_parks_naming_the_variable_and_retry_renders_with_the_current_version(
    desk: Desk,
) -> None:
    await desk.save("{{ payload.service }} is down")
    bad, good = await desk.publish('{"name": "api"}', '{"service": "db"}')
    parked = await desk.notification(bad)
    assert parked.status is Status.PARKED
    assert "`payload.service` is undefined" in (parked.last_error or "")
    assert f"topic '{DOWN}', version 1" in (parked.last_error or "")
    await desk.centre.deliver()
    assert desk.sent() == [("db is down", "")]
    assert (await desk.state(bad), await desk.state(good)) == (EventState.FAILED, EventState.SENT)
    await desk.save("{{ payload.name }} fell", seen=1)
    found = await desk.centre.get(parked.notification_id)
    await desk.notifications.retry(OPERATOR, parked.notification_id, found.version)
    await desk.centre.deliver()
    assert desk.sent()[1:] == [("api fell", "")]
    assert await desk.state(bad) is EventState.SENT
    [row] = await desk.centre.rows("select template_version from notifications where subject = 'api fell'")
    assert tuple(row) == (2,)


@pytest.mark.req("DEC-58")
async def test_retry_of_a_template_that_still_fails_parks_again(desk: Desk) -> None:
    await desk.save("{{ payload.service }}")
    [event_id] = await desk.publish("{}")
    parked = await desk.notification(event_id)
    await desk.notifications.retry(OPERATOR, parked.notification_id, 1)
    await desk.centre.deliver()
    assert (await desk.notification(event_id)).status is Status.PARKED
    assert desk.sent() == []
    [row] = await desk.centre.rows("select phase, outcome from attempts")
    assert tuple(row) == ("render", "permanent_failure")


@pytest.mark.req("EVT-10", "DEC-30", "DEC-58")
async def test_saving_a_missing_template_delivers_the_waiting_events_once(desk: Desk) -> None:
    first = await desk.publish(*['{"service": "api"}'] * 3)
    assert {await desk.state(one) for one in first} == {EventState.TEMPLATE_NOT_FOUND}
    assert await desk.save("{{ payload.service }} is down") == 3
    await desk.centre.deliver()
    assert desk.sent() == [("api is down", "")] * 3
    assert {await desk.state(one) for one in first} == {EventState.SENT}
    assert await desk.save("again", seen=1) == 0
    assert await WaitingEvents(desk.centre.store, desk.centre.clock).sweep() == 0
    await desk.centre.deliver()
    assert len(desk.sent()) == 3


@pytest.mark.fault(77)
@pytest.mark.req("EVT-10", "DEC-58")
@pytest.mark.parametrize("days", [31, 7])
async def test_events_older_than_the_limit_stay_without_a_notification(desk: Desk, days: int) -> None:
    [old] = await desk.publish('{"service": "old"}')
    desk.centre.clock.advance(timedelta(days=days, seconds=1).total_seconds())  # type: ignore[attr-defined]
    new = await desk.publish('{"service": "new"}', '{"service": "new"}')
    assert await desk.save("{{ payload.service }}") == 2
    await desk.centre.deliver()
    assert await WaitingEvents(desk.centre.store, desk.centre.clock).sweep() == 0
    assert await desk.save("{{ payload.service }} again", seen=1) == 0
    await desk.centre.deliver()
    assert desk.sent() == [("new", ""), ("new", "")]
    assert await desk.state(old) is EventState.TEMPLATE_NOT_FOUND
    assert {await desk.state(one) for one in new} == {EventState.SENT}


async def test_more_waiting_events_than_a_batch_are_created_by_the_sweep(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "BATCH", 2)
    await desk.publish(*['{"service": "api"}'] * 5)
    assert await desk.save("{{ payload.service }}") == 5
    assert await WaitingEvents(desk.centre.store, desk.centre.clock).sweep() == 3
    await desk.centre.deliver()
    assert len(desk.sent()) == 5
    assert await desk.centre.store.read(withheld.kinds) == []


@pytest.mark.req("DEC-86")
async def test_a_template_for_a_list_type_releases_only_events_of_that_type(desk: Desk) -> None:
    await desk.publish('{"service": "api"}')
    with pytest.raises(InvalidInput, match="no adapter of type 'pigeon'"):
        await desk.save("x", type="pigeon")
    assert await desk.save("mail {{ payload.service }}", type="email") == 1
    await desk.centre.deliver()
    assert desk.sent() == [("mail api", "")]


@pytest.mark.bad_input(40)
@pytest.mark.req("DEC-32")
@pytest.mark.parametrize(
    ("topic", "subject", "named"),
    [
        (Topic(name=DOWN, example='{"service": "api"}'), "{{ payload.servce }}", "payload.servce"),
        (Topic(name=DOWN, schema='{"properties": {"service": {}}}'), "{{ payload.servce }}", "payload.servce"),
        (
            Topic(name=DOWN, schema='{"properties": {"user": {"properties": {"email": {}}}}}'),
            "{{ payload.user.mail }}",
            "payload.user.mail",
        ),
        (Topic(name=DOWN), "{{ service }}", "service"),
    ],
)
async def test_an_unknown_variable_is_named_on_saving(desk: Desk, topic: Topic, subject: str, named: str) -> None:
    assert await desk.centre.store.write(topics.change, topic, desk.centre.clock.now())
    with pytest.raises(InvalidInput, match=named) as caught:
        await desk.save(subject)
    assert (caught.value.code, caught.value.field) == ("template.unknown_variable", "subject")
    assert await desk.save("fine") == 0


async def test_a_broken_template_is_refused_on_saving_and_two_who_save_at_once_conflict(desk: Desk) -> None:
    for source in ("{{ unclosed", "{% if %}"):
        with pytest.raises(InvalidInput):
            await desk.save(source)
    await desk.save("one")
    with pytest.raises(Conflict, match="already has this template"):
        await desk.save("two")
    await desk.save("two", seen=1)
    with pytest.raises(Conflict, match="changed by someone else"):
        await desk.save("three", seen=1)
    await desk.templates.remove(ADMIN, DOWN, "", 2)
    await desk.save("four")
    [row] = await desk.centre.rows("select max(version) from template_versions")
    assert tuple(row) == (3,)


@pytest.mark.req("DEC-57")
async def test_a_draft_for_a_person_never_takes_the_targets_of_the_list(desk: Desk) -> None:
    [route] = await desk.centre.store.read(routes.active)
    wanted = EventRoute(
        route_id=route.route_id, name="down", filter=route.filter, list_name="ops", to="email", version=route.version
    )
    assert await desk.centre.store.write(routes.change, wanted, desk.centre.clock.now())
    waiting_one, nobody = await desk.publish('{"email": "carol@example.org"}', "{}")
    assert await desk.save("Hello") == 2
    await desk.centre.deliver()
    [envelope] = desk.centre.adapter.envelopes
    assert envelope.targets == ("carol@example.org",)
    assert await desk.state(waiting_one) is EventState.SENT
    parked = await desk.notification(nobody)
    assert "no member 'email'" in (parked.last_error or "")
    found = await desk.centre.get(parked.notification_id)
    await desk.notifications.retry(OPERATOR, parked.notification_id, found.version)
    await desk.centre.deliver()
    assert len(desk.centre.adapter.envelopes) == 1


async def test_a_preview_renders_the_example_or_a_past_event_and_saves_nothing(desk: Desk) -> None:
    template = Template(topic=DOWN, subject="{{ payload.service }}", body="{{ payload.note }}")
    with pytest.raises(InvalidInput, match="no example"):
        await desk.templates.preview(template)
    topic = Topic(name=DOWN, example='{"service": "api", "note": "n"}')
    assert await desk.centre.store.write(topics.change, topic, desk.centre.clock.now())
    shown = await desk.templates.preview(template)
    assert (shown.subject, shown.body) == ("api", "n")
    [event_id] = await desk.publish('{"service": "db"}')
    shown = await desk.templates.preview(template, event_id)
    assert (shown.rendered, shown.variable) == (None, "payload.note")
    assert await desk.centre.rows("select * from template_versions") == []


@pytest.mark.req("CHN-01")
async def test_a_template_sets_the_alarm_fields_of_its_notifications(desk: Desk) -> None:
    await desk.save("{{ payload.service }}", severity="{{ payload.level }}", incident="{{ payload.service }}")
    [down] = await desk.publish('{"service": "shop", "level": "critical"}')
    await desk.save("up", seen=1, incident="{{ payload.service }}", is_cleared="{{ payload.is_up }}", severity="info")
    [up] = await desk.publish('{"service": "shop", "is_up": true}')
    await desk.centre.deliver()
    sent = {one.subject: (one.severity, one.incident, one.is_cleared) for one in desk.centre.adapter.envelopes}
    assert sent == {"shop": (Severity.CRITICAL, "shop", False), "up": (Severity.INFO, "shop", True)}
    assert (await desk.notification(down)).status is (await desk.notification(up)).status is Status.DELIVERED


@pytest.mark.req("CHN-01")
@pytest.mark.parametrize(
    ("part", "error"),
    [
        ({"severity": "{{ payload.service }}"}, "severity must be one of info, warning, error, critical, got 'api'"),
        ({"is_cleared": "{{ payload.service }}"}, "is_cleared must render to true or false, got 'api'"),
        ({"incident": "{{ payload.service * 90 }}"}, "incident must have at most 255 characters, got 270"),
        ({"incident": "{{ payload.servce }}"}, "payload.servce"),
    ],
)
async def test_an_invalid_alarm_field_parks_naming_it_and_retry_renders_it_again(
    desk: Desk, part: dict[str, str], error: str
) -> None:
    await desk.save("s", "{{ payload.service }}", **part)
    [event_id] = await desk.publish('{"service": "api"}')
    found = await desk.notification(event_id)
    assert (found.status, error in (found.last_error or "")) == (Status.PARKED, True)
    await desk.save("s", "{{ payload.service }}", seen=1, severity="error", incident=" \n", is_cleared="true")
    await desk.notifications.retry(OPERATOR, found.notification_id, 1)
    await desk.centre.deliver()
    retried = await desk.centre.get(found.notification_id)
    assert (retried.status, retried.severity, retried.incident, retried.is_cleared) == (
        Status.DELIVERED,
        Severity.ERROR,
        None,
        True,
    )
    [sent] = desk.centre.adapter.envelopes
    assert (sent.severity, sent.is_cleared) == (Severity.ERROR, True)
