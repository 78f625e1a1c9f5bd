"""Topics: the registered kinds of events."""

import re
from dataclasses import dataclass
from datetime import datetime

from fieldpost.core.errors import InvalidInput

TOPIC_LENGTH_MAX = 128
ATTRIBUTES_MAX = 32
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
    version: int = 1


def check_topic_name(value: object, field: str = "topic") -> str:
    """The name as given, or InvalidInput."""
    if type(value) is not str or not 1 <= len(value) <= TOPIC_LENGTH_MAX or not _NAME.fullmatch(value):
        raise InvalidInput(
            "topic.name",
            f"{field} must be 1 to {TOPIC_LENGTH_MAX} characters of A-Z, a-z, 0-9, '_', '.' and '-',"
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
