"""Filters of subscriptions, and the matcher over many of them."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.event import Event
from fieldpost.core.events.filter import (
    FilterEntry,
    Matcher,
    check_filter,
    entry_text,
    filter_matches,
    parse_entry,
)


def event(
    topic: str = "orders.created",
    action: str | None = "create",
    resource: str | None = "order/1",
    attributes: Mapping[str, str] | None = None,
) -> Event:
    return Event(
        event_id="00000000-0000-7000-8000-000000000001",
        topic=topic,
        source="app:shop",
        payload="{}",
        action=action,
        resource=resource,
        attributes=attributes or {"region": "North"},
    )


MATCHING = [
    FilterEntry(),
    FilterEntry(topic="*"),
    FilterEntry(topic="orders.created"),
    FilterEntry(topic="orders.*"),
    FilterEntry(topic="*.created", action="create"),
    FilterEntry(resource="order/*"),
    FilterEntry(attributes={"region": "north"}),
    FilterEntry(attributes={"region": "N*"}),
    FilterEntry(topic="orders.created", attributes={"region": "*"}),
]
OTHERS = [
    FilterEntry(topic="orders"),
    FilterEntry(topic="Orders.created"),
    FilterEntry(topic="orders.created", action="delete"),
    FilterEntry(action="Create"),
    FilterEntry(resource="order/10"),
    FilterEntry(attributes={"region": "south"}),
    FilterEntry(attributes={"Region": "north"}),
    FilterEntry(attributes={"size": "1"}),
    FilterEntry(attributes={"region": "north", "size": "1"}),
    FilterEntry(topic="a*a"),
]


@pytest.mark.parametrize("entry", MATCHING, ids=str)
def test_an_entry_matches_when_all_its_conditions_hold(entry: FilterEntry) -> None:
    assert filter_matches((entry,), event())


@pytest.mark.parametrize("entry", OTHERS, ids=str)
def test_an_entry_does_not_match_when_one_condition_fails(entry: FilterEntry) -> None:
    assert not filter_matches((entry,), event())


def test_one_matching_entry_is_enough() -> None:
    assert filter_matches((OTHERS[0], MATCHING[0]), event())


def test_star_does_not_let_prefix_and_suffix_overlap() -> None:
    assert filter_matches((FilterEntry(topic="a*b*a"),), event("aba"))
    assert not filter_matches((FilterEntry(topic="ab*ba"),), event("aba"))


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([], "filter.entries"),
        ([FilterEntry()] * 101, "filter.entries"),
        ([FilterEntry(topic="")], "text.empty"),
        ([FilterEntry(action="a\x00b")], "text.nul"),
        ([FilterEntry(attributes={"a b": "c"})], "attribute.name"),
        ([FilterEntry(attributes={f"a{n}": "c" for n in range(101)})], "filter.attributes"),
        ([FilterEntry(rule="regex")], "filter.rule"),
    ],
)
def test_invalid_filter_is_rejected_naming_the_rule(entries: list[FilterEntry], code: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_filter(entries)
    assert refused.value.code == code


values = st.sampled_from(["a", "b", "ab", "B", "a*", "*b", "*"])
names = st.sampled_from(["x", "y"])
entries = st.builds(
    FilterEntry,
    topic=values,
    action=st.none() | values,
    resource=st.none() | values,
    attributes=st.dictionaries(names, values, max_size=2),
)
plain = st.sampled_from(["a", "b", "ab", "B"])
events = st.builds(event, plain, st.none() | plain, st.none() | plain, st.dictionaries(names, plain, max_size=2))


@given(st.lists(st.lists(entries, min_size=1, max_size=3).map(tuple), max_size=8), events)
def test_the_matcher_finds_exactly_the_filters_that_match(
    filters: list[tuple[FilterEntry, ...]], published: Event
) -> None:
    matcher = Matcher(enumerate(filters))
    expected = [number for number, one in enumerate(filters) if filter_matches(one, published)]
    assert sorted(matcher.match(published)) == expected


@pytest.mark.parametrize(
    "entry",
    [
        FilterEntry(topic="orders"),
        FilterEntry(topic="orders*", action="created", resource="orders/1", attributes={"country": "NL"}),
    ],
)
def test_an_entry_as_text_reads_back(entry: FilterEntry) -> None:
    assert parse_entry(entry_text(entry), "line 1") == entry


@pytest.mark.parametrize("text", ["orders", "topic=", "=orders", "topic=orders,", ""])
def test_invalid_text_of_an_entry_is_rejected_naming_the_place(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^line 3 must be name=value, name=value, …$"):
        parse_entry(text, "line 3")
