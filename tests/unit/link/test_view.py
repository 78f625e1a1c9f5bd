"""Views: only named fields appear, each needs its role, and the schema follows the annotations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import pytest

from fieldpost.core.actor import Role
from fieldpost.link.http.view import View, ViewField, listing, plain, within

NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Part:
    name: str
    weight: float | None = None


@dataclass(frozen=True)
class Thing:
    at: datetime
    colour: Colour
    body: str
    parts: Sequence[Part] = ()
    spare: Part | None = None
    life: timedelta = timedelta(seconds=90)
    labels: Mapping[str, int] | None = None

    @property
    def size(self) -> int:
        return len(self.parts)


PART = View("Part", Part, "name weight")
THING = View(
    "Thing",
    Thing,
    "at colour size life_s=life labels spare_name=spare.name",
    ViewField("body", role=Role.OPERATOR),
    ViewField("parts", view=PART),
    ViewField("spare", view=PART),
)
ONE = Thing(NOW, Colour.RED, "secret", (Part("a", 1.5),), labels={"x": 1})


def test_a_value_is_encoded_field_by_field() -> None:
    assert THING.encode(ONE, Role.OPERATOR) == {
        "at": "2026-11-15T08:00:00.000000Z",
        "colour": "red",
        "size": 1,
        "life_s": 90.0,
        "labels": {"x": 1},
        "spare_name": None,
        "body": "secret",
        "parts": [{"name": "a", "weight": 1.5}],
        "spare": None,
    }


@pytest.mark.parametrize(("role", "body"), [(Role.VIEWER, None), (Role.OPERATOR, "secret"), (Role.ADMIN, "secret")])
def test_a_field_is_null_without_its_role(role: Role, body: str | None) -> None:
    assert THING.encode(ONE, role)["body"] == body


def test_a_new_field_of_a_type_appears_nowhere_until_a_view_names_it() -> None:
    grown = make_dataclass("GrownPart", [("password", str, "hunter2")], bases=(Part,), frozen=True)
    view = View("Grown", grown, "name weight")
    assert view.encode(grown("a")) == {"name": "a", "weight": None}
    assert "password" not in view.schema()["properties"]


def test_an_object_without_a_view_is_not_encoded() -> None:
    with pytest.raises(TypeError, match="Part needs a view"):
        plain({"part": Part("a")})
    with pytest.raises(TypeError, match="needs a view"):
        View("Leak", Thing, "spare")


def test_a_view_of_an_unknown_field_or_of_another_type_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="Part has no field 'colour'"):
        View("Wrong", Part, "colour")
    with pytest.raises(TypeError, match="Thing is a view of"):
        View("Wrong", Thing, ViewField("spare", view=THING))


def test_the_schema_follows_the_annotations() -> None:
    properties = THING.schema()["properties"]
    assert properties["at"] == {"type": "string", "format": "date-time"}
    assert properties["colour"] == {"type": "string", "enum": ["red"]}
    assert properties["body"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert properties["parts"] == {"type": "array", "items": PART.reference}
    assert properties["spare"] == {"anyOf": [PART.reference, {"type": "null"}]}
    assert properties["spare_name"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert THING.schema()["required"] == list(properties)
    assert [view.name for view in THING.nested()] == ["Thing", "Part", "Part"]


def test_a_listing_is_an_object_with_the_items() -> None:
    parts = listing("Parts", "parts", PART)
    assert parts.encode([Part("a")]) == {"parts": [{"name": "a", "weight": None}]}
    assert parts.schema()["properties"]["parts"] == {"type": "array", "items": PART.reference}
    assert within("record", "name age") == "name=record.name age=record.age"
