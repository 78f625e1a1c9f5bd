"""Templates: subject, body and alarm fields of the notifications that routes make of events.

A template belongs to a topic, or to a topic and a list type where a type needs its own. Saving makes a new version; a
notification keeps the version it was rendered with. This module holds the rules; `central.rendering` renders.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fieldpost.core.alarm import check_incident, check_severity
from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.event import Event
from fieldpost.core.events.topic import Topic, check_topic_name
from fieldpost.core.notification import Severity
from fieldpost.core.text import check_body, check_label, check_subject, check_text
from fieldpost.core.times import to_text

ANY_TYPE = ""
"""The type of a template for all list types without their own."""
SUBJECT_SOURCE_BYTES_MAX = 4096
BODY_SOURCE_BYTES_MAX = 64 * 1024
ALARM_PARTS = ("severity", "incident", "is_cleared")
"""The parts that a template may leave empty."""
_BREAKS = re.compile(r"[\s\x00-\x1f\x7f\x85\u2028\u2029]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One version of a template."""

    topic: str
    type: str = ANY_TYPE
    subject: str
    body: str
    severity: str = ""
    """Renders to a severity, or to nothing: then the list's applies."""
    incident: str = ""
    is_cleared: str = ""
    """Renders to `true`, or to `false` or nothing."""
    version: int = 1
    created_at: datetime | None = None
    created_by: str = ""
    is_current: bool = True

    @property
    def sources(self) -> dict[str, str]:
        """The parts to render, by name."""
        alarm = {part: source for part in ALARM_PARTS if (source := getattr(self, part))}
        return {"subject": self.subject, "body": self.body, **alarm}

    @property
    def label(self) -> str:
        """The template in an error message."""
        of_type = f" and type {self.type!r}" if self.type else ""
        return f"the template of topic {self.topic!r}{of_type}, version {self.version}"


@dataclass(frozen=True, slots=True)
class Rendered:
    """Text and alarm fields of a notification."""

    subject: str
    body: str
    severity: Severity | None = None
    incident: str | None = None
    is_cleared: bool = False


@dataclass(frozen=True, slots=True)
class RenderFailure:
    """Why a template could not be rendered, for people."""

    error: str
    variable: str | None = None
    """The unknown variable, if that is the reason."""
    is_ours: bool = False
    """The renderer failed, not the template: try again later."""


def check_template(template: Template) -> Template:
    """The template as given, or InvalidInput naming the field and the rule."""
    check_topic_name(template.topic)
    if template.type:
        check_label(template.type, "type")
    check_text(template.subject, "subject", SUBJECT_SOURCE_BYTES_MAX)
    check_text(template.body, "body", BODY_SOURCE_BYTES_MAX)
    for part in ALARM_PARTS:
        check_text(getattr(template, part), part, SUBJECT_SOURCE_BYTES_MAX)
    if not template.subject.strip():
        raise InvalidInput("template.empty", "subject must not be empty", field="subject")
    return template


def template_for(templates: Mapping[tuple[str, str], Template], topic: str, type_: str) -> Template | None:
    """The template for a topic and list type: its own, else that of the topic."""
    return templates.get((topic, type_)) or templates.get((topic, ANY_TYPE))


def variables_of(event: Event) -> str:
    """The variables of a template as JSON: `payload` and `event`. The payload is inserted as published."""
    fields = {
        "id": event.event_id,
        "topic": event.topic,
        "source": event.source,
        "action": event.action,
        "resource": event.resource,
        "attributes": dict(event.attributes),
        "occurred_at": to_text(event.occurred_at) if event.occurred_at else None,
        "correlation_id": event.correlation_id,
    }
    return f'{{"event":{json.dumps(fields, ensure_ascii=False)},"payload":{event.payload}}}'


def check_rendered(subject: str, body: str, severity: str = "", incident: str = "", is_cleared: str = "") -> Rendered:
    """Text and alarm fields for a notification; line breaks become spaces, except in the body. InvalidInput beyond the
    text limits, or for other values."""
    cleared = is_cleared.strip().lower()
    if cleared not in ("", "true", "false"):
        raise InvalidInput(
            "template.is_cleared", f"is_cleared must render to true or false, got {cleared[:64]!r}", field="is_cleared"
        )
    return Rendered(
        check_subject(_one_line(subject)),
        check_body(body),
        check_severity(severity.strip().lower() or None),
        check_incident(_one_line(incident) or None),
        cleared == "true",
    )


def _one_line(text: str) -> str:
    return _BREAKS.sub(" ", text).strip()


def unknown_by_schema(topic: Topic, names: Iterable[str]) -> str | None:
    """The first variable (`payload.user.name`) that the topic's schema does not describe; None if all are described.

    Only objects whose schema lists properties are checked; other schemas allow any member.
    """
    if topic.schema is None:
        return None
    schema = json.loads(topic.schema)
    return next((name for name in sorted(names) if not _is_described(schema, name.split(".")[1:])), None)


def _is_described(schema: Any, path: list[str]) -> bool:
    for part in path:
        properties = schema.get("properties") if isinstance(schema, dict) else None
        if not isinstance(properties, dict) or schema.keys() & {"$ref", "allOf", "anyOf", "oneOf", "patternProperties"}:
            return True
        if part not in properties:
            return False
        schema = properties[part]
    return True
