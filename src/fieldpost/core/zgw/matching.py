"""Matching by the rule `zgw`: which filter entries of abonnementen accept a notification.

An entry names one kanaal exactly. It accepts a notification of that kanaal if every condition fits for which the
notification has a value; a condition on a key that the notification does not have passes. Keys are compared without
case and underscores, because the field's libraries send `object_type` and `objectType` for the same kenmerk. Values are
compared exactly; only the value `*` accepts any. `#actie` and `#resource` are the action and the resource.

`ZgwIndex` files each entry under its first exact condition, so that the cost of a match follows the matches: a
notification looks up its own values, and takes all entries of a key that it does not have.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Generic, Protocol, TypeVar

ACTION_KEY = "#actie"
RESOURCE_KEY = "#resource"
ANY = "*"

H = TypeVar("H", bound=Hashable)
KeyedValues = Mapping[str, Sequence[str]]
"""The values of a notification by folded key; `object_type` and `objectType` may both be given."""
Conditions = tuple[tuple[str, str], ...]
"""Folded keys with the values that they must have."""


class _Fields(Protocol):
    """Action, resource and attributes of an event, or the conditions of a filter entry on them."""

    @property
    def action(self) -> str | None: ...
    @property
    def resource(self) -> str | None: ...
    @property
    def attributes(self) -> Mapping[str, str]: ...


@lru_cache(maxsize=4096)
def fold_key(key: str) -> str:
    """A key in the form in which keys are compared: without case and underscores. Dots count."""
    return key.replace("_", "").casefold()


def names_fit(of_kanaal: Sequence[str], given: Sequence[str]) -> bool:
    """Whether names of kenmerken or filters fit those of the kanaal: equal, or one set contains the other.

    A kanaal without filters accepts all names. `#actie` and `#resource` are always allowed.
    """
    wanted = {fold_key(name) for name in of_kanaal}
    named = {fold_key(name) for name in given} - {ACTION_KEY, RESOURCE_KEY}
    return not wanted or named <= wanted or wanted <= named


def values_of(event: _Fields) -> KeyedValues:
    """The values of an event that conditions look at."""
    found: dict[str, list[str]] = {}
    for name, value in event.attributes.items():
        found.setdefault(fold_key(name), []).append(value)
    if event.action is not None:
        found[ACTION_KEY] = [event.action]
    if event.resource is not None:
        found[RESOURCE_KEY] = [event.resource]
    return found


def conditions_of(entry: _Fields) -> Conditions:
    """The conditions of an entry, those that most values fail first; `*` is none."""
    found = [(fold_key(name), value) for name, value in entry.attributes.items()]
    found += [(key, value) for key, value in ((RESOURCE_KEY, entry.resource), (ACTION_KEY, entry.action)) if value]
    return tuple((key, value) for key, value in found if value != ANY)


def conditions_fit(conditions: Conditions, values: KeyedValues) -> bool:
    """Whether every condition fits for which there is a value."""
    for key, value in conditions:
        held = values.get(key)
        if held is not None and value not in held:
            return False
    return True


class ZgwIndex(Generic[H]):
    """The entries of many filters, by kanaal and first condition."""

    def __init__(self) -> None:
        self._kanalen: dict[str, dict[str, dict[str, list[tuple[Conditions, H]]]]] = {}

    def add(self, kanaal: str, entry: _Fields, key: H) -> None:
        conditions = conditions_of(entry)
        first, value = conditions[0] if conditions else ("", "")
        by_value = self._kanalen.setdefault(kanaal, {}).setdefault(first, {})
        by_value.setdefault(value, []).append((conditions, key))

    def match(self, kanaal: str, event: _Fields) -> Iterator[H]:
        """The keys of the filters that accept the event; a filter with several such entries occurs several times."""
        by_key = self._kanalen.get(kanaal)
        if by_key is None:
            return
        values = values_of(event)
        for first, by_value in by_key.items():
            held = values.get(first)
            found = by_value.values() if held is None else [by_value[value] for value in held if value in by_value]
            for entries in found:
                for conditions, key in entries:
                    if conditions_fit(conditions, values):
                        yield key
