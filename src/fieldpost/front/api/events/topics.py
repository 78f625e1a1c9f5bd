"""`/topics`: the registered kinds of events."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from fieldpost.central.access.audit_trail import KEEP
from fieldpost.core.events.topic import Topic
from fieldpost.front.api.notifications import SeenVersion
from fieldpost.front.http.call import Call
from fieldpost.link.http.body import Body, RowVersion
from fieldpost.link.http.endpoint_spec import spec
from fieldpost.link.http.view import View, ViewField, listing

OptionalJson = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": ["object", "null"]})]


def _null() -> msgspec.Raw:
    # Not a plain default: the schema of a struct cannot show encoded JSON.
    return msgspec.Raw(b"null")


class SavedTopic(Body, frozen=True, kw_only=True):
    """All of a topic but its name."""

    description: str = ""
    attributes: tuple[str, ...] = ()
    """Names of the attributes that subscriptions filter by."""
    schema: OptionalJson = msgspec.field(default_factory=_null)
    """JSON Schema of the payload. `pattern` and `patternProperties` are shown and not evaluated; `$ref` stays within
    the schema."""
    example: OptionalJson = msgspec.field(default_factory=_null)
    """A payload that fits the schema."""
    owners: tuple[str, ...] = ()
    """The owners that may subscribe; `*` for all."""
    is_archived: bool = False
    is_kanaal: bool | None = None
    """Whether it is a kanaal of the ZGW API, whose events are notifications of that API; null leaves it as it is."""
    version: RowVersion | None = None
    """The version that the caller has seen; null to add a topic."""


def _schema(topic: Topic) -> msgspec.Raw | None:
    return None if topic.schema is None else msgspec.Raw(topic.schema)


def _example(topic: Topic) -> msgspec.Raw | None:
    return None if topic.example is None else msgspec.Raw(topic.example)


def _is_kanaal(topic: Topic) -> bool:
    return topic.kanaal_id is not None


TOPIC = View(
    "TopicView",
    Topic,
    "name description attributes",
    ViewField("schema", _schema),
    ViewField("example", _example),
    "owners archived_at",
    ViewField("is_kanaal", _is_kanaal),
    "documentation_url version",
)
TOPICS = listing("TopicsView", "topics", TOPIC)


@spec(TOPICS)
async def show_all(call: Call) -> Sequence[Topic]:
    """List all topics by name, archived ones included; for a subscriber, those that its owner may subscribe to."""
    return await call.watch.events.topics(call.actor.owner_limit)


@spec(TOPIC)
async def show(call: Call) -> Topic:
    """Show one topic with its schema and example."""
    return await call.watch.events.topic(call.path("name"), call.actor.owner_limit)


@spec(TOPIC, body=SavedTopic, problems=(409,))
async def save(call: Call) -> Topic:
    """Add a topic, or replace all of it if its `version` is given. The example is checked against the schema; published
    payloads are not. Archived topics accept no events."""
    given = await call.read(SavedTopic)
    topic = Topic(
        name=call.path("name"),
        description=given.description,
        attributes=given.attributes,
        schema=_text(given.schema),
        example=_text(given.example),
        owners=given.owners,
    )
    is_kanaal = KEEP if given.is_kanaal is None else given.is_kanaal
    return await call.operate.topics.save(
        call.actor, topic, given.version, is_archived=given.is_archived, is_kanaal=is_kanaal
    )


@spec(TOPIC, body=SeenVersion, problems=(409,))
async def archive(call: Call) -> Topic:
    """Archive a topic: its events stay, and new ones are rejected. Save it with `is_archived` false to reopen it."""
    seen = await call.read(SeenVersion)
    return await call.operate.topics.archive(call.actor, call.path("name"), seen.version)


def _text(given: msgspec.Raw) -> str | None:
    """The JSON text as it arrived; null is None."""
    return None if bytes(given) == b"null" else bytes(given).decode()
