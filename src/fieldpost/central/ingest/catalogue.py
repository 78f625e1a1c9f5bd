"""The catalogue of publishing: topics, subscriptions, routes and templates, compiled, as of a version."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from fieldpost.central.store.events import routes, subscriptions, templates, topics
from fieldpost.core.events.audience import is_reserved, may_get
from fieldpost.core.events.event import Event, notification_id_of
from fieldpost.core.events.filter import Matcher
from fieldpost.core.events.notice import NOTICE_TYPES
from fieldpost.core.events.route import EventRoute, may_route
from fieldpost.core.events.subscription import Subscription, subscription_key
from fieldpost.core.events.template import Template, template_for
from fieldpost.core.events.topic import Topic
from fieldpost.core.lists import UNRESOLVED_TYPE


@dataclass(frozen=True, slots=True)
class RouteMatch:
    """A route that an event takes, with a list, its type and the template; None where there is none yet."""

    route: EventRoute
    list_name: str
    """The route's list, or one of the lists that it names."""
    type: str
    template: Template | None
    is_part: bool = False
    """The route leads to a list of lists, and at least one of its lists has a template."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The catalogue as of one version: decides about events."""

    version: int
    subscription_matcher: Matcher[tuple[str, str, str]]
    """Subscription id, delivery key and name of each subscription."""
    route_matcher: Matcher[str]
    """Route ids."""
    topics: Mapping[str, Topic]
    subscriptions: Mapping[str, Subscription]
    """By id."""
    routes: Mapping[str, EventRoute]
    """By id."""
    list_types: Mapping[str, str]
    """Of the lists of routes and of those that they name, by name."""
    members: Mapping[str, tuple[str, ...]]
    """The lists that the lists of lists among them name."""
    templates: Mapping[tuple[str, str], Template]
    """The current ones by topic and list type."""

    def refusal(self, event: Event, *, is_open: bool) -> tuple[str, str] | None:
        """Code and text of the reason to reject the event; None if it is accepted."""
        topic = self.topics.get(event.topic)
        if is_reserved(event):
            return "topic.reserved", f"only central publishes to topic {event.topic!r}"
        if topic is None and not is_open and event.topic not in NOTICE_TYPES:
            return "topic.unknown", f"topic {event.topic!r} is not registered"
        if topic is not None and topic.archived_at is not None:
            return "topic.archived", f"topic {event.topic!r} is archived"
        return None

    def subscribers(self, event: Event) -> list[tuple[str, str, str]]:
        """Notification id, delivery key and name for each subscription that gets the event."""
        topic = self.topics.get(event.topic)
        return [
            (notification_id_of(event.event_id, subscription_id), key, name)
            for subscription_id, key, name in self.subscription_matcher.match(event)
            if may_get(self.subscriptions[subscription_id], event, topic)
        ]

    def matches(self, event: Event) -> list[RouteMatch]:
        """The routes that the event takes, by name; one to a list of lists once per list."""
        if not self.routes:
            return []
        taken = [one for i in self.route_matcher.match(event) if may_route(one := self.routes[i], event)]
        found = []
        for route in sorted(taken, key=lambda one: one.name):
            members = self.members.get(route.list_name)
            of_route = [self._match(route, name, event) for name in members or (route.list_name,)]
            if members and any(one.template is not None for one in of_route):
                found += [replace(one, is_part=True) for one in of_route]
            else:  # without any template the event waits once
                found += of_route[:1]
        return found

    def _match(self, route: EventRoute, list_name: str, event: Event) -> RouteMatch:
        type_ = self.list_types.get(list_name, UNRESOLVED_TYPE)
        return RouteMatch(route, list_name, type_, template_for(self.templates, event.topic, type_))


def load(conn: Connection) -> Catalogue:
    # The version first: a change in between makes the catalogue too new for its version, and it is loaded again.
    version = subscriptions.version(conn)
    active = subscriptions.active(conn)
    routed = routes.active(conn)
    names = {one.list_name for one in routed}
    members = routes.members_of(conn, names)
    return Catalogue(
        version,
        Matcher(((s.subscription_id, subscription_key(s.subscription_id), s.name), s.filter) for s in active),
        Matcher((route.route_id, route.filter) for route in routed),
        {topic.name: topic for topic in topics.all_topics(conn)},
        {one.subscription_id: one for one in active},
        {one.route_id: one for one in routed},
        routes.list_types(conn, names.union(*members.values())),
        members,
        templates.current(conn),
    )
