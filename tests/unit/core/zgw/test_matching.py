"""Matching of abonnementen: a table that shows where Open Notificaties and OneGround differ, and why we chose ours.

`open_notificaties` and `oneground` are the rules of those products in a few lines, so that the table cannot claim what
they do not do. Of OneGround we know how keys and values are compared, and nothing about keys that are missing: such
rows say None.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

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
    zgw_entry,
    zgw_filters,
)
from fieldpost.core.zgw.matching import names_fit

Texts = Mapping[str, str]
ZAAKTYPE = "https://catalogi.example.org/zaaktypen/1"


@dataclass(frozen=True)
class Row:
    filters: Texts
    kenmerken: Texts
    fits: bool
    open_notificaties: bool
    oneground: bool | None
    why: str
    actie: str = "create"
    resource: str = "zaak"
    kanaal: str = "zaken"


def row(filters: Texts, kenmerken: Texts, verdicts: str, why: str, **more: str) -> Row:
    """`verdicts` has one letter each for us, Open Notificaties and OneGround: y, n, or ? for unknown."""
    ours, on, og = ({"y": True, "n": False, "?": None}[letter] for letter in verdicts)
    assert ours is not None
    assert on is not None
    return Row(filters, kenmerken, ours, on, og, why, **more)


TABLE = [
    row({}, {}, "yyy", "an entry without filters accepts all"),
    row({}, {"bron": "1"}, "yyy", "an entry without filters accepts all"),
    row({"bron": "1"}, {"bron": "1"}, "yyy", "equal"),
    row({"bron": "1"}, {"bron": "2"}, "nnn", "another value"),
    row({"bron": "*"}, {"bron": "2"}, "yyy", "* accepts any value"),
    row({"bron": "*"}, {"bron": ""}, "yyy", "a blank value is a value"),
    row({"bron": "1"}, {"bron": ""}, "nnn", "a blank value is not a missing key"),
    row({"bron": "*"}, {}, "yy?", "a missing key passes, whatever the condition"),
    row({"bron": "1"}, {}, "yy?", "a missing key passes: a kanaal may get filters that older publishers do not send"),
    row({"bron": "1", "soort": "a"}, {"bron": "1", "soort": "a"}, "yyy", "all conditions hold"),
    row({"bron": "1", "soort": "a"}, {"bron": "1", "soort": "b"}, "nnn", "one condition fails"),
    row({"bron": "1", "soort": "a"}, {"bron": "2", "soort": "a"}, "nnn", "the other fails"),
    row({"bron": "1", "soort": "a"}, {"bron": "1"}, "yy?", "the key that is missing passes"),
    row({"bron": "1", "soort": "a"}, {"bron": "2"}, "nnn", "the key that is there fails"),
    row({"bron": "1"}, {"bron": "1", "soort": "a"}, "yyy", "further kenmerken do not matter"),
    row({"bron": "1", "soort": "*"}, {"bron": "1", "soort": "x"}, "yyy", "exact and *"),
    row({"bron": "2", "soort": "*"}, {"bron": "1", "soort": "x"}, "nnn", "* does not help the other condition"),
    row({"objectType": "a"}, {"objectType": "a"}, "yyy", "camel case on both sides"),
    row({"object_type": "a"}, {"objectType": "a"}, "yy?", "libraries send both spellings of one kenmerk"),
    row({"objectType": "a"}, {"object_type": "a"}, "yy?", "libraries send both spellings of one kenmerk"),
    row({"object_type": "a"}, {"object_type": "a"}, "yyy", "snake case on both sides"),
    row({"object_type": "a"}, {"objectType": "b"}, "nn?", "the value counts under any spelling"),
    row({"OBJECTTYPE": "a"}, {"objecttype": "a"}, "yyy", "case of keys: equal for all, by luck or by rule"),
    row({"ObjectType": "b"}, {"objecttype": "a"}, "nyn", "to Open Notificaties the key is missing; it is not"),
    row({"object_type": "b"}, {"objecttype": "a"}, "ny?", "to Open Notificaties the key is missing; it is not"),
    row({"zaaktype.catalogus": "c"}, {"zaaktype.catalogus": "c"}, "yyy", "dots are part of the name"),
    row({"zaaktype.catalogus": "c"}, {"zaaktype.catalogus": "d"}, "nnn", "dots are part of the name"),
    row({"zaaktype.catalogus": "c"}, {"zaaktypecatalogus": "d"}, "yy?", "without the dot it is another key"),
    row({"bron": "A"}, {"bron": "a"}, "nny", "values are exact: URLs and codes differ by case"),
    row({"vertrouwelijk": "True"}, {"vertrouwelijk": "true"}, "nny", "values are texts, booleans too"),
    row({"vertrouwelijk": "true"}, {"vertrouwelijk": "true"}, "yyy", "equal texts"),
    row({"zaaktype": ZAAKTYPE}, {"zaaktype": ZAAKTYPE}, "yyy", "URLs"),
    row({"zaaktype": ZAAKTYPE}, {"zaaktype": ZAAKTYPE + "/"}, "nnn", "URLs are not normalised"),
    row({"zaaktype": ZAAKTYPE[:-1] + "*"}, {"zaaktype": ZAAKTYPE}, "nnn", "* within a value is no pattern"),
    row({"bron": "**"}, {"bron": "a"}, "nnn", "only * alone accepts any value"),
    row({"bron": "*"}, {"bron": "*"}, "yyy", "* as a value"),
    row({"bron": "a"}, {"bron": "*"}, "nnn", "* in a notification is a value like any other"),
    row({"#actie": "create"}, {}, "yyy", "the action"),
    row({"#actie": "update"}, {}, "nnn", "another action"),
    row({"#actie": "Create"}, {}, "nnn", "the action is exact"),
    row({"#actie": "*"}, {}, "yyy", "any action"),
    row({"#resource": "zaak"}, {}, "yyy", "the resource"),
    row({"#resource": "status"}, {}, "nnn", "another resource"),
    row({"#resource": "*", "#actie": "destroy"}, {}, "yyy", "both", actie="destroy"),
    row({"#actie": "create", "bron": "1"}, {"bron": "1"}, "yyy", "action and kenmerk"),
    row({"#actie": "create", "bron": "1"}, {"bron": "2"}, "nnn", "action and another kenmerk"),
    row({"#actie": "update", "bron": "1"}, {"bron": "1"}, "nnn", "another action and kenmerk"),
    row({"actie": "create"}, {"actie": "x"}, "nnn", "a kenmerk named actie is not #actie"),
    row({"#actie": "create"}, {"actie": "x"}, "yyy", "#actie does not look at the kenmerk"),
    row({}, {}, "nnn", "another kanaal", kanaal="documenten"),
    row({"bron": "1"}, {"bron": "1"}, "nnn", "names of kanalen are exact", kanaal="Zaken"),
]


def event(one: Row) -> Event:
    return Event(
        event_id="00000000-0000-7000-8000-000000000001",
        topic=one.kanaal,
        source="zgw:zaken",
        payload="{}",
        action=one.actie,
        resource=one.resource,
        attributes=one.kenmerken,
    )


def camelized(texts: Texts) -> dict[str, str]:
    """Keys as djangorestframework-camel-case makes them."""
    return {re.sub(r"[a-z0-9]_[a-z0-9]", lambda m: m[0][0] + m[0][2].upper(), key): v for key, v in texts.items()}


def open_notificaties(one: Row) -> bool:
    """Keys camelized on both sides, values exact or *, a missing key passes."""
    has = camelized(one.kenmerken) | {"#actie": one.actie, "#resource": one.resource}
    wanted = camelized(one.filters).items()
    return one.kanaal == "zaken" and all(key not in has or value in ("*", has[key]) for key, value in wanted)


def oneground(one: Row) -> bool | None:
    """The special keys exactly, kenmerken without case; None where a key is missing."""
    if one.kanaal != "zaken":
        return False
    special = {"#actie": one.actie, "#resource": one.resource}
    has = {key.lower(): value.lower() for key, value in one.kenmerken.items()}
    verdicts: list[bool | None] = []
    for key, value in one.filters.items():
        if key in special:
            verdicts.append(value in ("*", special[key]))
        else:
            held = has.get(key.lower())
            verdicts.append(None if held is None else value == "*" or value.lower() == held)
    return False if False in verdicts else None if None in verdicts else True


def test_table_has_at_least_forty_rows() -> None:
    assert len(TABLE) >= 40
    assert sum(one.fits != one.open_notificaties or one.oneground not in (None, one.fits) for one in TABLE) >= 4


@pytest.mark.req("ZGW-06", "ZGW-07")
@pytest.mark.dec("DEC-68")
@pytest.mark.parametrize("one", TABLE, ids=lambda one: f"{dict(one.filters)}-{dict(one.kenmerken)}-{one.why}")
def test_entry_accepts_notification(one: Row) -> None:
    entry = zgw_entry("zaken", one.filters)

    assert filter_matches((entry,), event(one)) is one.fits
    assert Matcher([("me", (entry,))]).match(event(one)) == (["me"] if one.fits else [])


@pytest.mark.parametrize("one", TABLE, ids=lambda one: f"{dict(one.filters)}-{dict(one.kenmerken)}-{one.why}")
def test_table_states_the_other_products_by_their_rules(one: Row) -> None:
    assert open_notificaties(one) is one.open_notificaties
    assert oneground(one) is one.oneground


@pytest.mark.req("ZGW-06")
def test_subscription_matches_if_one_of_its_entries_does() -> None:
    entries = (zgw_entry("zaken", {"bron": "2"}), zgw_entry("documenten", {}), zgw_entry("zaken", {"bron": "1"}))
    of_one = Row({}, {"bron": "1"}, True, True, True, "")

    assert Matcher([("me", entries)]).match(event(of_one)) == ["me"]
    assert not filter_matches(entries[:2], event(of_one))


@pytest.mark.dec("DEC-68")
def test_native_and_zgw_entries_match_side_by_side() -> None:
    native = FilterEntry(topic="zaken", attributes={"bron": "A"})
    matcher = Matcher([("native", (native,)), ("zgw", (zgw_entry("zaken", {"bron": "A"}),))])

    assert matcher.match(event(Row({}, {"bron": "a"}, True, True, True, ""))) == ["native"]
    assert matcher.match(event(Row({}, {}, True, True, True, ""))) == ["zgw"]


@pytest.mark.req("ZGW-08")
@pytest.mark.parametrize(
    ("of_kanaal", "names", "fits"),
    [
        ([], ["a", "b"], True),
        (["a"], [], True),
        (["a", "b"], ["a"], True),
        (["a"], ["a", "b"], True),
        (["a", "b"], ["b", "a"], True),
        (["object_type"], ["objectType"], True),
        (["a", "b"], ["a", "c"], False),
        (["a"], ["b"], False),
        (["a"], ["#actie", "#resource"], True),
        (["a", "b"], ["a", "#actie"], True),
        (["zaaktype.catalogus"], ["zaaktypecatalogus"], False),
    ],
)
def test_names_fit_if_one_set_contains_the_other(of_kanaal: list[str], names: list[str], fits: bool) -> None:
    assert names_fit(of_kanaal, names) is fits


@pytest.mark.dec("DEC-68")
def test_entry_survives_its_text_and_its_filters() -> None:
    filters = {"zaaktype": "https://a.example/?b=1,2", "#actie": "create", "#resource": "*", "naam": 'a "b"'}
    entry = zgw_entry("zaken", filters)

    assert parse_entry(entry_text(entry), "line 1") == entry
    assert zgw_filters(entry) == filters
    assert check_filter([entry]) == (entry,)


@pytest.mark.parametrize("text", ["zgw:", "zgw: 1", 'zgw: {"naam": 1}', 'zgw: {"naam": "a", "x": 1}', "zgw: {"])
def test_text_that_is_no_entry_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_entry(text, "line 1")


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (zgw_entry("*", {}), "topic.name"),
        (zgw_entry("a b", {}), "topic.name"),
        (zgw_entry("zaken", {"a": ""}), "filter.value"),
        (zgw_entry("zaken", {"a": "x" * 1001}), "filter.value"),
        (zgw_entry("zaken", {"a" * 101: "x"}), "filter.key"),
        (zgw_entry("zaken", {"a\n": "x"}), "text.control"),
        (zgw_entry("zaken", {f"a{n}": "x" for n in range(101)}), "filter.attributes"),
    ],
)
def test_invalid_entry_is_rejected(entry: FilterEntry, code: str) -> None:
    with pytest.raises(InvalidInput) as error:
        check_filter([entry])
    assert error.value.code == code


texts = st.dictionaries(st.sampled_from(["a", "A", "a_b", "aB", "#actie", "c"]), st.sampled_from("12*"), max_size=4)


@given(st.lists(st.lists(texts, min_size=1, max_size=3), max_size=6), texts)
def test_index_finds_the_same_as_a_scan(filters: list[list[dict[str, str]]], kenmerken: dict[str, str]) -> None:
    made = [(n, tuple(zgw_entry("zaken", one) for one in entries)) for n, entries in enumerate(filters)]
    one = event(Row({}, {k: v for k, v in kenmerken.items() if k != "#actie"}, True, True, True, "", actie="1"))

    assert sorted(Matcher(made).match(one)) == [n for n, entries in made if filter_matches(entries, one)]
