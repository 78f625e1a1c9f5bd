"""Notifications of the ZGW API: their fields, the events that they become, and their identity.

A notification is kept and passed on byte for byte. The event has its kanaal as topic, `actie` and `resource` as action
and resource, and the kenmerken as attributes, so that filters and routes see them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fieldpost.core.actor import APP, ZGW_CLIENT
from fieldpost.core.events.event import Event
from fieldpost.core.events.topic import Topic
from fieldpost.core.ids import derived_id, id_with
from fieldpost.core.times import from_text
from fieldpost.core.zgw.fields import FieldReader, InvalidParam, InvalidParams, invalid, line_of, text_of, url_of
from fieldpost.core.zgw.matching import names_fit

KANAAL_LENGTH_MAX = 50
NAME_LENGTH_MAX = 100
VALUE_LENGTH_MAX = 1000
KENMERKEN_MAX = 100
AHEAD_MAX = timedelta(minutes=5)
TEST_KANAAL = "test"
SOURCE = APP + ZGW_CLIENT
"""The start of the source of events that ZGW clients publish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZgwNotification:
    """The fields of a notification that decide who gets it."""

    kanaal: str
    resource: str
    actie: str
    aanmaakdatum: datetime
    kenmerken: Mapping[str, str]
    """Numbers and truth values as texts."""

    def event(self, event_id: str, source: str, payload: str) -> Event:
        return Event(
            event_id=event_id,
            topic=self.kanaal,
            source=source,
            payload=payload,
            action=self.actie,
            resource=self.resource,
            attributes=self.kenmerken,
            occurred_at=self.aanmaakdatum,
        )


def source_of(client_id: str) -> str:
    """The source of the events of a client."""
    return SOURCE + client_id


def read_notification(value: object, now: datetime | None = None) -> ZgwNotification:
    """The notification in a JSON object, or InvalidParams; without `now` its time may be in the future."""
    fields = FieldReader(value)
    kanaal = fields.read("kanaal", line_of(KANAAL_LENGTH_MAX))
    fields.read("hoofdObject", url_of())
    resource = fields.read("resource", line_of(NAME_LENGTH_MAX))
    fields.read("resourceUrl", url_of())
    actie = fields.read("actie", line_of(NAME_LENGTH_MAX))
    aanmaakdatum = fields.read("aanmaakdatum", _moment)
    kenmerken = fields.read("kenmerken", _kenmerken, is_required=False)
    fields.read("source", text_of(NAME_LENGTH_MAX, is_blank_allowed=True), is_required=False)
    if now is not None and aanmaakdatum is not None and aanmaakdatum - now > AHEAD_MAX:
        fields.wrong("aanmaakdatum", "future_not_allowed", "must not be in the future")
    fields.finish()
    assert kanaal is not None
    assert resource is not None
    assert actie is not None
    assert aanmaakdatum is not None
    return ZgwNotification(
        kanaal=kanaal, resource=resource, actie=actie, aanmaakdatum=aanmaakdatum, kenmerken=kenmerken or {}
    )


def repeatable_id(client_id: str, value: object, at: datetime) -> str:
    """The event id of a notification, the same whenever this client sends the same content.

    Key order and spaces do not count. It begins with the time of the notification, because random ids would touch a
    random page of every index.
    """
    # As ASCII: further fields are kept as they are, and may contain lone surrogates.
    content = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return id_with(int(at.timestamp() * 1000), derived_id("zgw", client_id, content)[14:])


def as_event_of_kanaal(event: Event, topic: Topic | None) -> Event:
    """The event as filters see it, if its topic is a kanaal: with action, resource and attributes of its payload.

    Raises InvalidParams if an event of the native API is not a notification of this kanaal. Those of the ZGW API were
    read already.
    """
    is_native = not event.source.startswith(SOURCE)
    if topic is None or topic.kanaal_id is None:
        if not is_native:
            raise invalid("kanaal", "message_kanaal", f"there is no kanaal {event.topic!r}")
        return event
    if is_native:
        event = _read_native(event)
    if not names_fit(topic.attributes, tuple(event.attributes)):
        named = ", ".join(topic.attributes)
        raise invalid("kenmerken", "kenmerken_inconsistent", f"the names must fit those of the kanaal: {named}")
    return event


def _read_native(event: Event) -> Event:
    try:
        value = json.loads(event.payload)
    except (ValueError, RecursionError):
        raise invalid("payload", "invalid", "must be JSON") from None
    read = read_notification(value)
    given = {"kanaal": event.topic, "actie": event.action, "resource": event.resource}
    wrong = [name for name, text in given.items() if text not in (None, getattr(read, name))]
    if event.attributes and event.attributes != read.kenmerken:
        wrong.append("kenmerken")
    if wrong:
        raise InvalidParams(*(InvalidParam(name, "invalid", "differs from the event's") for name in wrong))
    return replace(
        event,
        action=read.actie,
        resource=read.resource,
        attributes=read.kenmerken,
        occurred_at=event.occurred_at or read.aanmaakdatum,
    )


def _moment(value: Any, name: str) -> datetime:
    text = value if isinstance(value, str) and 16 <= len(value) <= 40 else ""
    try:
        # Without a zone it is UTC, as in the libraries of this field.
        moment = datetime.fromisoformat(text)
        found = moment.replace(tzinfo=UTC) if moment.tzinfo is None else from_text(text)
    except ValueError:
        found = None
    if found is None:
        raise invalid(name, "invalid", "must be a date and time such as 2026-11-15T08:00:00Z")
    return found


def _kenmerken(value: Any, name: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise invalid(name, "not_a_dict", "must be an object of names and texts")
    if len(value) > KENMERKEN_MAX:
        raise invalid(name, "max_length", f"must have at most {KENMERKEN_MAX} entries, got {len(value)}")
    return {_key(key, name): _value(one, f"{name}.{key[:NAME_LENGTH_MAX]}") for key, one in value.items()}


def _key(key: str, name: str) -> str:
    return line_of(NAME_LENGTH_MAX)(key, f"{name}.{key[:NAME_LENGTH_MAX]}")


def _value(value: Any, name: str) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return json.dumps(value)
        case None:
            raise invalid(name, "null", "this field must not be null")
        case _:
            return text_of(VALUE_LENGTH_MAX, is_blank_allowed=True)(value, name)
