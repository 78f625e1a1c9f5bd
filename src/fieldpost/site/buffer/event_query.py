"""What people and programs ask of the site's event log, as they write it."""

from collections.abc import Mapping

from fieldpost.core.errors import InvalidInput
from fieldpost.core.search.filters import parse_moment
from fieldpost.core.search.tokens import tokenize
from fieldpost.core.sites.message import Category
from fieldpost.site.buffer.event_log import EventFilter, EventKind, Severity

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")
TEXT_LENGTH_MAX = 256
FIELDS = (
    *("kind", "severity", "category", "message_id", "target", "instance", "script"),
    *("since", "until", "words"),
)


def event_filter(given: Mapping[str, str]) -> EventFilter:
    """Which entries are asked for; InvalidInput names what cannot be asked."""
    for name, value in given.items():
        if len(value) > TEXT_LENGTH_MAX:
            raise InvalidInput("filter.too_long", f"{name} has more than {TEXT_LENGTH_MAX} characters", field=name)
    kind = given.get("kind")
    if kind is not None and kind not in list(EventKind):
        raise InvalidInput("filter.kind", f"kind must be one of {', '.join(EventKind)}", field="kind")
    severity = next((word for word in SEVERITIES if word == given.get("severity")), None)
    if severity is None and "severity" in given:
        raise InvalidInput("filter.severity", f"severity must be one of {', '.join(SEVERITIES)}", field="severity")
    category = given.get("category")
    if category is not None and category not in list(Category):
        raise InvalidInput("filter.category", f"category must be one of {', '.join(Category)}", field="category")
    return EventFilter(
        kind=kind,
        severity=severity,
        category=None if category is None else Category(category),
        message_id=given.get("message_id"),
        target=given.get("target"),
        instance=given.get("instance"),
        script=given.get("script"),
        since=parse_moment(given["since"], "since") if "since" in given else None,
        until=parse_moment(given["until"], "until") if "until" in given else None,
        words=frozenset(tokenize(given.get("words", ""))),
    )
