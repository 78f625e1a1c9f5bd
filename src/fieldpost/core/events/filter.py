"""Event filters: which events a subscription or route gets, and a matcher over many of them.

A filter has entries. Within an entry all conditions must hold (AND); between entries one is enough (OR). A condition is
a text in which `*` stands for any characters; attribute values compare case-insensitively. An entry without a condition
for a field accepts any value of it.

`Matcher` answers "which of ten thousand filters match this event?" at a cost that follows the matches. Each entry is
filed under its most selective exact condition: an attribute value, else the resource, else the action, else the topic.
An event looks up its own values in that index and checks only the entries found there.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.event import Event
from fieldpost.core.events.topic import ATTRIBUTES_MAX, check_attribute_name
from fieldpost.core.text import check_label

ENTRIES_MAX = 100
NATIVE = "native"
RULES = (NATIVE, "zgw")

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


def filter_matches(entries: SubscriptionFilter, event: Event) -> bool:
    """Whether the filter accepts the event."""
    return any(_accepts(entry, event) for entry in entries)


class Matcher(Generic[H]):
    """Many filters at once: `match` returns the keys of those that accept an event."""

    def __init__(self, filters: Iterable[tuple[H, SubscriptionFilter]]) -> None:
        self._index: dict[tuple[str, ...], list[tuple[FilterEntry, H]]] = {}
        self._attribute_names: set[str] = set()
        for key, entries in filters:
            for entry in entries:
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
    return (
        _fits(entry.topic, event.topic)
        and _fits(entry.action, event.action)
        and _fits(entry.resource, event.resource)
        and all(
            _fits(value.casefold(), held.casefold() if (held := event.attributes.get(name)) is not None else None)
            for name, value in entry.attributes.items()
        )
    )


def _fits(wanted: str | None, value: str | None) -> bool:
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
