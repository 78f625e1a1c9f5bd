"""Members of a payload: attributes that the publisher left out, and the address of the person an event is about.

Payloads are parsed only for topics with registered attributes and for routes with `to`.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.event import Event
from fieldpost.core.events.topic import Topic
from fieldpost.core.text import check_label, is_label

ADDRESS_BYTES_MAX = 2048
_DEPTH_MAX = 8


def check_member(path: object, field: str) -> str:
    """The path of a payload member as given (`email`, `user.email`), or InvalidInput."""
    text = check_label(path, field)
    parts = text.split(".")
    if len(parts) > _DEPTH_MAX or not all(part.strip() == part and part for part in parts):
        raise InvalidInput(
            "route.to", f"{field} must be a payload member such as email or user.email, got {text[:64]!r}", field=field
        )
    return text


def with_payload_attributes(event: Event, topic: Topic | None) -> Event:
    """The event with registered attributes that it does not set, taken from the payload members of the same name."""
    # The attributes of a kanaal are the kenmerken within its notifications.
    is_plain = topic is not None and topic.kanaal_id is None
    missing = [name for name in topic.attributes if name not in event.attributes] if topic and is_plain else []
    if not missing:
        return event
    members = _members(event.payload)
    found = {name: text for name in missing if (text := _text(members.get(name))) is not None and is_label(text)}
    return replace(event, attributes={**event.attributes, **found}) if found else event


def address_of(payload: str, path: str) -> str:
    """The text in the payload member; InvalidInput names the member if it is missing or not a text."""
    value: object = _members(payload)
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if value is None:
        raise InvalidInput("route.no_address", f"the payload has no member {path!r} with an address", field="to")
    return check_label(value, f"the payload member {path!r}", ADDRESS_BYTES_MAX)


@lru_cache(maxsize=4)
def _members(payload: str) -> Mapping[str, object]:
    """Cached because the routes of one event read the same payload."""
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(value: object) -> str | None:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case _:
            return None
