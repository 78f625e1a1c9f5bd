"""Event filters: which events a subscription or route gets, and a matcher over many of them.

A filter has entries. Within an entry all conditions must hold (AND); between entries one is enough (OR). A condition is
a text in which `*` stands for any characters; attribute values compare case-insensitively. An entry without a condition
for a field accepts any value of it. Entries of the rule `zgw`, which the ZGW API makes, match by their own rule (see
`core/zgw/matching.py`).

`Matcher` answers "which of ten thousand filters match this event?" at a cost that follows the matches. Each entry is
filed under its most selective exact condition: an attribute value, else the resource, else the action, else the topic.
An event looks up its own values in that index and checks only the entries found there.
"""

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.event import Event
from fieldpost.core.events.topic import ATTRIBUTES_MAX, check_attribute_name, check_topic_name
from fieldpost.core.text import check_label, check_text
from fieldpost.core.zgw.matching import ACTION_KEY, RESOURCE_KEY, ZgwIndex, conditions_fit, conditions_of, values_of

ENTRIES_MAX = 100
NATIVE = "native"
ZGW = "zgw"
RULES = (NATIVE, ZGW)
KEY_LENGTH_MAX = 100
VALUE_LENGTH_MAX = 1000
"""Of the filters of an abonnement."""

_FIELDS = ("topic", "action", "resource")
"""Other names in the text of an entry are attributes."""

H = TypeVar("H", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterEntry:
    """Conditions that must all hold. `rule` records which API created the entry, and with it how it matches."""

    topic: str = "*"
    action: str | None = None
    resource: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    rule: str = NATIVE


SubscriptionFilter = tuple[FilterEntry, ...]


def check_filter(entries: Sequence[FilterEntry]) -> SubscriptionFilter:
    """The filter as given, or InvalidInput naming the entry and field."""
    if not 1 <= len(entries) <= ENTRIES_MAX:
        raise InvalidInput("filter.entries", f"filter must have 1 to {ENTRIES_MAX} entries", field="filter")
    for number, entry in enumerate(entries):
        where = f"filter[{number}]"
        if entry.rule == ZGW:
            _check_zgw_entry(entry, where)
            continue
        check_label(entry.topic, f"{where}.topic")
        for name in ("action", "resource"):
            if (value := getattr(entry, name)) is not None:
                check_label(value, f"{where}.{name}")
        if len(entry.attributes) > ATTRIBUTES_MAX:
            raise InvalidInput(
                "filter.attributes", f"{where}.attributes has more than {ATTRIBUTES_MAX} entries", field=where
            )
        for name, value in entry.attributes.items():
            check_label(value, f"{where}.attributes.{check_attribute_name(name, where)}")
        if entry.rule not in RULES:
            raise InvalidInput("filter.rule", f"{where}.rule must be one of {', '.join(RULES)}", field=where)
    return tuple(entries)


def _check_zgw_entry(entry: FilterEntry, where: str) -> None:
    check_topic_name(entry.topic, f"{where}.topic")
    filters = zgw_filters(entry)
    if len(filters) > ATTRIBUTES_MAX:
        raise InvalidInput("filter.attributes", f"{where} has more than {ATTRIBUTES_MAX} filters", field=where)
    for key, value in filters.items():
        name = f"{where}.filters.{key[:KEY_LENGTH_MAX]}"
        if len(check_label(key, name, 4 * KEY_LENGTH_MAX)) > KEY_LENGTH_MAX:
            raise InvalidInput("filter.key", f"{name} must be at most {KEY_LENGTH_MAX} characters", field=name)
        if not 1 <= len(check_text(value, name, 4 * VALUE_LENGTH_MAX)) <= VALUE_LENGTH_MAX:
            raise InvalidInput("filter.value", f"{name} must be 1 to {VALUE_LENGTH_MAX} characters", field=name)


def zgw_entry(kanaal: str, filters: Mapping[str, str]) -> FilterEntry:
    """The entry for a kanaal and the filters of an abonnement on it; `#actie` and `#resource` may be among them."""
    attributes = dict(filters)
    action, resource = attributes.pop(ACTION_KEY, None), attributes.pop(RESOURCE_KEY, None)
    return FilterEntry(topic=kanaal, action=action, resource=resource, attributes=attributes, rule=ZGW)


def zgw_filters(entry: FilterEntry) -> dict[str, str]:
    """The filters of an entry as an abonnement shows them."""
    special = {ACTION_KEY: entry.action, RESOURCE_KEY: entry.resource}
    return {**entry.attributes, **{key: value for key, value in special.items() if value is not None}}


def entry_text(entry: FilterEntry) -> str:
    """An entry as one line: `topic=orders, action=created, country=NL`; by the rule `zgw`, `zgw: ` and JSON."""
    if entry.rule == ZGW:
        return f"{ZGW}: {json.dumps({'naam': entry.topic, 'filters': zgw_filters(entry)}, ensure_ascii=False)}"
    named = [(name, getattr(entry, name)) for name in _FIELDS]
    return ", ".join(f"{name}={value}" for name, value in [*named, *entry.attributes.items()] if value is not None)


def parse_entry(text: str, where: str) -> FilterEntry:
    """The entry in a line like that of `entry_text`; InvalidInput about `where` for any other text."""
    rule, colon, rest = text.partition(":")
    if colon and rule.strip() == ZGW:
        return _parse_zgw_entry(rest, where)
    named: dict[str, str] = {}
    attributes: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (one.strip() for one in part.partition("="))
        if not equals or not name or not value:
            raise InvalidInput("filter.text", f"{where} must be name=value, name=value, …", field="filter")
        (named if name in _FIELDS else attributes)[name] = value
    return FilterEntry(**named, attributes=attributes)


def _parse_zgw_entry(text: str, where: str) -> FilterEntry:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    filters = given.get("filters", {}) if isinstance(given, dict) else None
    if not isinstance(given, dict) or given.keys() - {"naam", "filters"} or not isinstance(filters, dict):
        raise InvalidInput(
            "filter.text", f'{where} must be zgw: {{"naam": "…", "filters": {{"key": "value", …}}}}', field="filter"
        )
    return zgw_entry(check_topic_name(given.get("naam"), f"{where}.naam"), filters)


def filter_matches(entries: SubscriptionFilter, event: Event) -> bool:
    """Whether the filter accepts the event."""
    return any(_accepts(entry, event) for entry in entries)


class Matcher(Generic[H]):
    """Many filters at once: `match` returns the keys of those that accept an event."""

    def __init__(self, filters: Iterable[tuple[H, SubscriptionFilter]]) -> None:
        self._index: dict[tuple[str, ...], list[tuple[FilterEntry, H]]] = {}
        self._zgw = ZgwIndex[H]()
        self._attribute_names: set[str] = set()
        for key, entries in filters:
            for entry in entries:
                if entry.rule == ZGW:
                    self._zgw.add(entry.topic, entry, key)
                    continue
                condition = _most_selective(entry)
                if condition[0] == "attribute":
                    self._attribute_names.add(condition[1])
                self._index.setdefault(condition, []).append((entry, key))

    def match(self, event: Event) -> list[H]:
        """The keys of the filters that accept the event, each once."""
        found: dict[H, None] = {}
        for condition in self._conditions(event):
            for entry, key in self._index.get(condition, ()):
                if key not in found and _accepts(entry, event):
                    found[key] = None
        found.update(dict.fromkeys(self._zgw.match(event.topic, event)))
        return list(found)

    def _conditions(self, event: Event) -> Iterable[tuple[str, ...]]:
        yield ("any",)
        yield "topic", event.topic
        if event.action is not None:
            yield "action", event.action
        if event.resource is not None:
            yield "resource", event.resource
        for name in self._attribute_names & event.attributes.keys():
            yield "attribute", name, event.attributes[name].casefold()


def _most_selective(entry: FilterEntry) -> tuple[str, ...]:
    for name, value in entry.attributes.items():
        if "*" not in value:
            return "attribute", name, value.casefold()
    for name in ("resource", "action", "topic"):
        value = getattr(entry, name)
        if value is not None and "*" not in value:
            return name, value
    return ("any",)


def _accepts(entry: FilterEntry, event: Event) -> bool:
    if entry.rule == ZGW:
        return entry.topic == event.topic and conditions_fit(conditions_of(entry), values_of(event))
    return (
        fits_text(entry.topic, event.topic)
        and fits_text(entry.action, event.action)
        and fits_text(entry.resource, event.resource)
        and all(
            fits_text(value.casefold(), held.casefold() if (held := event.attributes.get(name)) is not None else None)
            for name, value in entry.attributes.items()
        )
    )


def fits_text(wanted: str | None, value: str | None) -> bool:
    """Whether a value fits a condition; no condition accepts any value."""
    if wanted is None or wanted == "*":
        return True
    if value is None:
        return False
    return wanted == value if "*" not in wanted else _fits_pattern(wanted, value)


def _fits_pattern(pattern: str, value: str) -> bool:
    """Whether the value fits a pattern with `*`. Each part is searched once from the left, so the cost is linear."""
    first, *middle, last = pattern.split("*")
    if len(value) < len(first) + len(last) or not value.startswith(first) or not value.endswith(last):
        return False
    at, end = len(first), len(value) - len(last)
    for part in middle:
        found = value.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
