"""Routes at publishing: matching, attributes from the payload, addresses, cooldowns, and events that wait."""

import asyncio
import os
from dataclasses import replace
from datetime import timedelta

import pytest

from fieldpost.central.ingest.publish import Publisher, PublishOptions
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.rendering.composer import Composer, RenderJob
from fieldpost.central.rendering.waiting import create_waiting
from fieldpost.central.store.events import events, results, routes, templates, topics, withheld
from fieldpost.central.store.events.withheld import WithheldReason
from fieldpost.central.store.notifications import lists
from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.event import Event
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.result import EventState
from fieldpost.core.events.route import EventRoute
from fieldpost.core.events.template import Rendered, RenderFailure, Template
from fieldpost.core.events.topic import Topic
from fieldpost.core.ids import new_id
from fieldpost.core.notification import Status
from support.centre import Centre

SOURCE = "app:monitor"
DOWN = "SERVICE_DOWN"


class Echo:
    """Renders the template's source with the variables behind it."""

    async def render(self, jobs: "list[RenderJob]") -> list[Rendered | RenderFailure]:  # type: ignore[override]
        return [Rendered(job.template.subject, job.variables) for job in jobs]


def publisher_of(centre: Centre) -> Publisher:
    composer = Composer(Echo(), centre.adapters)
    return Ingest(centre.store, centre.clock, events=PublishOptions(), composer=composer).publisher


@pytest.fixture
async def publisher(centre: Centre) -> Publisher:
    await centre.add_channel()
    await centre.add_list("ops", "ann@example.org", "bob@example.org")
    await centre.add_list("people", "never@example.org")
    topic = Topic(name=DOWN, attributes=("service", "group"))
    await centre.store.write(topics.add, topic, centre.clock.now())
    return publisher_of(centre)


async def add_route(centre: Centre, name: str = "down", list_name: str = "ops", **more: object) -> EventRoute:
    given = {"filter": (FilterEntry(topic=DOWN),), **more}
    route = EventRoute(route_id=make_id(centre), name=name, list_name=list_name, **given)  # type: ignore[arg-type]
    await centre.store.write(routes.add, route, centre.clock.now())
    return route


async def add_template(centre: Centre, topic: str = DOWN, type_: str = "", version: int = 1) -> None:
    made = Template(
        topic=topic, type=type_, subject=f"{topic} {version}", body="", version=version, created_at=centre.clock.now()
    )
    assert await centre.store.write(templates.add_version, made, version - 1 or None)


def make_id(centre: Centre) -> str:
    return new_id(centre.clock.now(), os.urandom(10))


def make_event(centre: Centre, payload: str = '{"service": "api", "group": 7}', **more: object) -> Event:
    fields = {"event_id": make_id(centre), "topic": DOWN, "source": SOURCE, "payload": payload, **more}
    return Event(**fields)  # type: ignore[arg-type]


async def statuses(centre: Centre, event: Event) -> list[tuple[str, Status]]:
    found = await centre.store.read(events.notifications_of, event.event_id, 100)
    return sorted((one.list_name, one.status) for one in found)


async def state(centre: Centre, event: Event) -> EventState:
    [found] = await centre.store.read(results.states, SOURCE, [event.event_id])
    return found.state


async def deliver(centre: Centre) -> None:
    dispatcher = centre.dispatcher()
    async with dispatcher.running():
        await dispatcher.sweep()
        await dispatcher.idle()


@pytest.mark.req("DEC-31", "DEC-57", "EVT-14")
async def test_route_sends_an_event_to_its_list_by_attributes_read_from_the_payload(
    centre: Centre, publisher: Publisher
) -> None:
    await add_template(centre)
    await add_route(centre, filter=(FilterEntry(topic=DOWN, attributes={"group": "7", "service": "API"}),))
    await add_route(centre, "other", "people", filter=(FilterEntry(topic=DOWN, attributes={"group": "8"}),))
    event = make_event(centre)
    [verdict] = await publisher.publish(SOURCE, [event])
    assert (verdict.verdict, verdict.state) == ("accepted", EventState.PROCESSING)
    assert await statuses(centre, event) == [("ops", Status.PENDING)]
    recorded = await centre.store.read(events.get, event.event_id)
    assert recorded is not None
    assert recorded.event.attributes == {"service": "api", "group": "7"}
    [again] = await publisher.publish(SOURCE, [event])
    assert again.verdict == "duplicate"
    await deliver(centre)
    [envelope] = centre.adapter.envelopes
    assert (set(envelope.targets), envelope.subject) == ({"ann@example.org", "bob@example.org"}, "SERVICE_DOWN 1")
    assert await state(centre, event) is EventState.SENT


@pytest.mark.req("DEC-57")
@pytest.mark.parametrize(
    ("payload", "attributes", "expected"),
    [
        ('{"service": "api"}', {"service": "db"}, {"service": "db"}),
        ('{"service": true, "group": 1.5}', {}, {"service": "true", "group": "1.5"}),
        ('{"service": {"name": "api"}, "group": null, "other": "x"}', {}, {}),
        ('{"service": "a\\nb", "group": "\\ud800"}', {}, {}),
    ],
)
async def test_only_registered_attributes_that_are_missing_and_plain_come_from_the_payload(
    centre: Centre, publisher: Publisher, payload: str, attributes: dict[str, str], expected: dict[str, str]
) -> None:
    event = make_event(centre, payload, attributes=attributes)
    await publisher.publish(SOURCE, [event])
    recorded = await centre.store.read(events.get, event.event_id)
    assert recorded is not None
    assert recorded.event.attributes == expected


@pytest.mark.req("DEC-57")
async def test_two_routes_to_one_list_make_one_notification(centre: Centre, publisher: Publisher) -> None:
    await add_template(centre)
    await add_route(centre)
    await add_route(centre, "again")
    event = make_event(centre)
    await publisher.publish(SOURCE, [event])
    assert await statuses(centre, event) == [("ops", Status.PENDING)]


@pytest.mark.req("DEC-57")
async def test_address_from_the_payload_replaces_the_targets_of_the_list(centre: Centre, publisher: Publisher) -> None:
    await add_template(centre)
    await add_route(centre, "reset", "people", to="user.email")
    event = make_event(centre, '{"user": {"email": "Carol@example.org"}}')
    await publisher.publish(SOURCE, [event])
    await deliver(centre)
    [envelope] = centre.adapter.envelopes
    assert [one.lower() for one in envelope.targets] == ["carol@example.org"]


@pytest.mark.req("DEC-57")
@pytest.mark.parametrize(
    ("payload", "named"),
    [
        ("{}", "no member 'user.email'"),
        ('{"user": "carol@example.org"}', "no member 'user.email'"),
        ('{"user": {"email": 7}}', "'user.email'"),
        ('{"user": {"email": ["a@example.org", "b@example.org"]}}', "'user.email'"),
        ('{"user": {"email": "a@example.org\\r\\nBcc: b@example.org"}}', "'user.email'"),
        ('{"user": {"email": "\\ud800"}}', "'user.email'"),
    ],
)
async def test_invalid_address_parks_the_notification_naming_it_and_sends_nothing(
    centre: Centre, publisher: Publisher, payload: str, named: str
) -> None:
    await add_template(centre)
    await add_route(centre, "reset", "people", to="user.email")
    event = make_event(centre, payload)
    [verdict] = await publisher.publish(SOURCE, [event])
    assert verdict.state is EventState.FAILED
    [found] = await centre.store.read(events.notifications_of, event.event_id, 10)
    assert found.status is Status.PARKED
    assert named in (found.last_error or "")
    await deliver(centre)
    assert centre.adapter.envelopes == []


@pytest.mark.req("DEC-57")
async def test_the_adapter_of_the_list_checks_the_address(centre: Centre, publisher: Publisher) -> None:
    def refuse(address: str) -> str:
        raise InvalidInput("email.address", f"{address!r} is not a mail address")

    centre.adapter.check_target = refuse  # type: ignore[method-assign]
    await add_template(centre)
    await add_route(centre, "reset", "people", to="email")
    event = make_event(centre, '{"email": "nobody"}')
    await publisher.publish(SOURCE, [event])
    [found] = await centre.store.read(events.notifications_of, event.event_id, 10)
    assert "'nobody' is not a mail address" in (found.last_error or "")


@pytest.mark.req("DEC-57")
async def test_a_route_without_to_never_mails_an_address_from_a_payload(centre: Centre, publisher: Publisher) -> None:
    await add_template(centre)
    await add_route(centre)
    payload = '{"to": "evil@example.net", "email": "evil@example.net", "address": "evil@example.net", "list": "people"}'
    await publisher.publish(SOURCE, [make_event(centre, payload)])
    await deliver(centre)
    [envelope] = centre.adapter.envelopes
    assert set(envelope.targets) == {"ann@example.org", "bob@example.org"}


@pytest.mark.req("DEC-57")
async def test_a_cooldown_lets_one_event_per_value_and_period_pass_and_counts_the_others(
    centre: Centre, publisher: Publisher
) -> None:
    await add_template(centre)
    route = await add_route(centre, cooldown_s=600.0, cooldown_by="service")
    api, db = '{"service": "api"}', '{"service": "db"}'
    first = [make_event(centre, one) for one in (api, api, db, api)]
    verdicts = await publisher.publish(SOURCE, first)
    sent = [EventState.PROCESSING, EventState.SENT, EventState.PROCESSING, EventState.SENT]
    assert [one.state for one in verdicts] == sent
    assert [one.verdict for one in await publisher.publish(SOURCE, first)] == ["duplicate"] * 4
    centre.clock.advance(300)  # type: ignore[attr-defined]
    late = make_event(centre, api)
    await publisher.publish(SOURCE, [late])
    assert await statuses(centre, late) == []
    counts = await centre.store.read(routes.suppressed_counts)
    assert counts == {route.route_id: 3}
    [held] = await centre.store.read(withheld.of_event, late.event_id)
    assert (held.route_id, held.reason) == (route.route_id, WithheldReason.COOLDOWN)
    assert await state(centre, late) is EventState.SENT
    centre.clock.advance(301)  # type: ignore[attr-defined]
    after = make_event(centre, api)
    await publisher.publish(SOURCE, [after])
    assert await statuses(centre, after) == [("ops", Status.PENDING)]


async def test_of_events_published_at_once_a_cooldown_lets_one_pass(centre: Centre, publisher: Publisher) -> None:
    await add_template(centre)
    await add_route(centre, cooldown_s=600.0)
    made = [make_event(centre) for _ in range(8)]
    others = [publisher_of(centre) for _ in made]
    await asyncio.gather(*(one.publish(SOURCE, [event]) for one, event in zip(others, made, strict=True)))
    assert sum([len(await statuses(centre, event)) for event in made]) == 1


@pytest.mark.req("EVT-10", "DEC-58")
async def test_an_event_without_a_template_is_kept_and_its_publisher_sees_template_not_found(
    centre: Centre, publisher: Publisher
) -> None:
    route = await add_route(centre)
    event = make_event(centre)
    [verdict] = await publisher.publish(SOURCE, [event])
    assert (verdict.verdict, verdict.state) == ("accepted", EventState.TEMPLATE_NOT_FOUND)
    assert await state(centre, event) is EventState.TEMPLATE_NOT_FOUND
    since = centre.clock.now() - timedelta(days=1)
    [group] = await centre.store.read(withheld.groups, since)
    assert (group.topic, group.type, group.count) == (DOWN, "email", 1)
    [held] = await centre.store.read(withheld.of_event, event.event_id)
    assert (held.route_id, held.reason) == (route.route_id, WithheldReason.NO_TEMPLATE)


@pytest.mark.req("DEC-86")
async def test_a_template_of_the_list_type_goes_before_that_of_the_topic(centre: Centre, publisher: Publisher) -> None:
    await add_template(centre)
    await add_template(centre, type_="email")
    await add_route(centre)
    event = make_event(centre)
    await publisher.publish(SOURCE, [event])
    [row] = await centre.rows("select template_type, template_version, is_draft from notifications")
    assert (row[0], row[1], bool(row[2])) == ("email", 1, False)


async def test_a_route_added_before_the_transaction_gets_its_notification_rendered(
    centre: Centre, publisher: Publisher
) -> None:
    await add_template(centre)
    await publisher.publish(SOURCE, [make_event(centre)])
    await add_route(centre)
    [verdict] = await publisher.publish(SOURCE, [make_event(centre)])
    assert verdict.state is EventState.PROCESSING
    [row] = await centre.rows("select is_draft, status from notifications")
    assert (bool(row[0]), row[1]) == (False, "pending")


async def test_while_routes_change_all_the_time_a_notification_becomes_a_draft(centre: Centre) -> None:
    class Changing(Echo):
        async def render(self, jobs: "list[RenderJob]") -> list[Rendered | RenderFailure]:  # type: ignore[override]
            route_id = make_id(centre)
            await add_route(centre, route_id, filter=(FilterEntry(topic="other"),))
            return await super().render(jobs)

    await centre.add_channel()
    await centre.add_list("ops", "ann@example.org")
    await centre.store.write(topics.add, Topic(name=DOWN), centre.clock.now())
    await add_template(centre)
    await add_route(centre)
    composer = Composer(Changing(), centre.adapters)  # type: ignore[arg-type]
    publisher = Ingest(centre.store, centre.clock, composer=composer).publisher
    [verdict] = await publisher.publish(SOURCE, [make_event(centre)])
    assert (verdict.verdict, verdict.state) == ("accepted", EventState.PROCESSING)
    [row] = await centre.rows("select is_draft, status from notifications")
    assert (bool(row[0]), row[1]) == (True, "pending")


@pytest.fixture
async def alarm(centre: Centre, publisher: Publisher) -> Publisher:
    """A route to a list of lists of two types."""
    await centre.add_channel("pager", type="pager")
    await centre.add_list("pagers", "a", type="pager")
    await centre.add_list("alarm", "ops", "pagers", type="lists")
    await add_route(centre, list_name="alarm", cooldown_s=600.0)
    return publisher


@pytest.mark.req("CHN-11", "CHN-12")
async def test_a_route_to_a_list_of_lists_renders_each_part_by_its_type(centre: Centre, alarm: Publisher) -> None:
    await add_template(centre, type_="email")
    await add_template(centre, type_="pager", version=1)
    event = make_event(centre)
    await alarm.publish(SOURCE, [event])
    assert await statuses(centre, event) == [("ops", Status.PENDING), ("pagers", Status.PENDING)]
    rows = await centre.rows("select list_name, template_type, whole_list from notifications order by list_name")
    assert rows == [("ops", "email", "alarm"), ("pagers", "pager", "alarm")]
    assert await centre.rows("select list_name, source_site_id from wholes") == [("alarm", SOURCE)]
    [again] = await alarm.publish(SOURCE, [event])
    assert again.verdict == "duplicate"
    # The cooldown counts the event once, and suppresses all parts of the next one.
    later = make_event(centre)
    await alarm.publish(SOURCE, [later])
    assert await statuses(centre, later) == []


@pytest.mark.req("CHN-11")
async def test_the_part_of_a_type_without_a_template_parks_and_a_retry_renders_it(
    centre: Centre, alarm: Publisher
) -> None:
    await add_template(centre, type_="email")
    event = make_event(centre)
    await alarm.publish(SOURCE, [event])
    await deliver(centre)
    assert await statuses(centre, event) == [("ops", Status.DELIVERED), ("pagers", Status.PARKED)]
    [(parked, error)] = await centre.rows(
        "select notification_id, last_error from notifications where status = 'parked'"
    )
    assert error == "there is no template for topic 'SERVICE_DOWN' and lists of type 'pager'"
    await add_template(centre, type_="pager")
    assert await centre.retry(str(parked))
    assert [i for i, _ in await centre.rows("select status, is_draft from notifications")].count("pending") == 1


@pytest.mark.req("CHN-11")
async def test_an_event_to_a_list_of_lists_without_any_template_waits_for_one(centre: Centre, alarm: Publisher) -> None:
    event = make_event(centre)
    [verdict] = await alarm.publish(SOURCE, [event])
    assert verdict.state is EventState.TEMPLATE_NOT_FOUND
    await add_template(centre)
    assert await centre.store.write(create_waiting, timedelta(days=7), now=centre.store.now()) == 1
    assert await statuses(centre, event) == [("ops", Status.PENDING), ("pagers", Status.PENDING)]
    assert len(await centre.rows("select 1 from wholes")) == 1


@pytest.mark.req("CHN-11")
async def test_a_changed_list_of_lists_counts_for_the_next_event(centre: Centre, alarm: Publisher) -> None:
    await add_template(centre)
    await alarm.publish(SOURCE, [make_event(centre)])
    seen = await centre.store.read(lists.get_list, "alarm")
    assert seen is not None
    assert await centre.store.write(lists.change_list, replace(seen, targets=("people",)), centre.clock.now())
    centre.clock.advance(3600)  # type: ignore[attr-defined]
    event = make_event(centre)
    await alarm.publish(SOURCE, [event])
    assert await statuses(centre, event) == [("people", Status.PENDING)]
