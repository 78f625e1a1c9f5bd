"""Topics: the registered kinds of events."""

import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.json_schema import check_schema, violation
from fieldpost.core.text import check_label, check_text

TOPIC_LENGTH_MAX = 128
ATTRIBUTES_MAX = 100
OWNERS_MAX = 1000
DESCRIPTION_BYTES_MAX = 4096
SCHEMA_BYTES_MAX = 64 * 1024
EXAMPLE_BYTES_MAX = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A registered kind of event. Schema and example are documentation: publishing does not check them."""

    name: str
    description: str = ""
    attributes: tuple[str, ...] = ()
    """Names of the attributes that filters may use."""
    schema: str | None = None
    """JSON Schema of the payload, as text."""
    example: str | None = None
    """An example payload, as JSON text; it fits the schema."""
    owners: tuple[str, ...] = ()
    """The owners that may subscribe to it; `*` stands for all. Administrators may subscribe any owner."""
    archived_at: datetime | None = None
    """Archived topics accept no events."""
    kanaal_id: str | None = None
    """The random id in the URL of a topic that is a kanaal of the ZGW API; its events are notifications of that API."""
    documentation_url: str | None = None
    """Of a kanaal: `documentatieLink`."""
    version: int = 1


def check_topic(topic: Topic) -> Topic:
    """The topic as given, or InvalidInput naming the field and the rule. The example must fit the schema."""
    check_topic_name(topic.name, "name")
    if topic.description:
        check_text(topic.description, "description", DESCRIPTION_BYTES_MAX)
    if len(topic.attributes) > ATTRIBUTES_MAX or len(set(topic.attributes)) < len(topic.attributes):
        raise InvalidInput(
            "topic.attributes", f"attributes must be at most {ATTRIBUTES_MAX} different names", field="attributes"
        )
    for name in topic.attributes:
        check_attribute_name(name)
    if len(topic.owners) > OWNERS_MAX:
        raise InvalidInput("topic.owners", f"owners must be at most {OWNERS_MAX} names", field="owners")
    for owner in topic.owners:
        check_label(owner, "owners")
    schema = _parse(topic.schema, "schema", SCHEMA_BYTES_MAX)
    example = _parse(topic.example, "example", EXAMPLE_BYTES_MAX)
    if schema is not None:
        check_schema(schema)
        if example is not None and (found := violation(schema, example)) is not None:
            raise InvalidInput("topic.example", f"example does not fit the schema at {found}", field="example")
    return topic


def _parse(text: str | None, field: str, bytes_max: int) -> dict[str, Any] | None:
    if text is None:
        return None
    if len(text.encode()) > bytes_max:
        raise InvalidInput(f"topic.{field}", f"{field} must be at most {bytes_max} bytes", field=field)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput(f"topic.{field}", f"{field} must be JSON", field=field) from None
    if not isinstance(value, dict):
        raise InvalidInput(f"topic.{field}", f"{field} must be a JSON object", field=field)
    return value


def check_topic_name(value: object, field: str = "topic", length_max: int = TOPIC_LENGTH_MAX) -> str:
    """The name as given, or InvalidInput."""
    if type(value) is not str or not 1 <= len(value) <= length_max or not _NAME.fullmatch(value):
        raise InvalidInput(
            "topic.name",
            f"{field} must be 1 to {length_max} characters of A-Z, a-z, 0-9, '_', '.' and '-',"
            " starting with a letter or digit",
            field=field,
        )
    return value


def check_attribute_name(value: object, field: str = "attributes") -> str:
    """The name of an attribute as given, or InvalidInput; the rule is the one for topic names."""
    if type(value) is not str or not 1 <= len(value) <= TOPIC_LENGTH_MAX or not _NAME.fullmatch(value):
        raise InvalidInput(
            "attribute.name",
            f"a name in {field} must be 1 to {TOPIC_LENGTH_MAX} characters of A-Z, a-z, 0-9, '_', '.' and '-',"
            " starting with a letter or digit",
            field=field,
        )
    return value
