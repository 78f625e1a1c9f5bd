"""The part of JSON Schema that topics use."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.json_schema import check_schema, violation

FITS: list[tuple[dict[str, Any], Any, Any]] = [
    ({"type": "string"}, "x", 1),
    ({"type": ["integer", "null"]}, None, 1.5),
    ({"type": "integer"}, 2.0, True),
    ({"type": "number"}, 1, "1"),
    ({"enum": [1, "a", [True]]}, 1.0, [1]),
    ({"const": {"a": 1}}, {"a": 1.0}, {"a": True}),
    ({"minimum": 3}, 3, 2.9),
    ({"maximum": 3}, "not a number", 4),
    ({"exclusiveMinimum": 3}, 4, 3),
    ({"exclusiveMaximum": 3}, 2, 3),
    ({"multipleOf": 0.1}, 0.3, 0.35),
    ({"multipleOf": 3}, 10**400 * 3, 10**400 + 1),
    ({"minLength": 2}, "ab", "a"),
    ({"maxLength": 2}, "ab", "abc"),
    ({"minItems": 1}, [1], []),
    ({"maxItems": 1}, [1], [1, 2]),
    ({"uniqueItems": True}, [1, True, "1"], [1, 1.0]),
    ({"minProperties": 1}, {"a": 1}, {}),
    ({"maxProperties": 1}, {"a": 1}, {"a": 1, "b": 2}),
    ({"required": ["a"]}, {"a": None}, {"b": 1}),
    ({"dependentRequired": {"a": ["b"]}}, {"c": 1}, {"a": 1}),
    ({"dependentSchemas": {"a": {"minProperties": 2}}}, {"b": 1}, {"a": 1}),
    ({"properties": {"a": {"type": "string"}}}, {"a": "x", "b": 1}, {"a": 1}),
    ({"properties": {"a": True}, "additionalProperties": False}, {"a": 1}, {"b": 1}),
    ({"additionalProperties": {"type": "null"}}, {"a": None}, {"a": 1}),
    ({"propertyNames": {"maxLength": 1}}, {"a": 1}, {"ab": 1}),
    ({"items": {"type": "integer"}}, [1, 2], [1, "2"]),
    ({"prefixItems": [{"type": "string"}], "items": False}, ["a"], ["a", 1]),
    ({"contains": {"const": 3}}, [1, 3], [1, 2]),
    ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, 2, 3),
    ({"anyOf": [{"type": "string"}, {"minimum": 5}]}, 6, 4),
    ({"oneOf": [{"minimum": 1}, {"minimum": 5}]}, 2, 6),
    ({"not": {"type": "string"}}, 1, "a"),
    ({"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"required": ["c"]}}, {"c": 1}, {"a": 1}),
    ({"$defs": {"n": {"type": "integer"}}, "items": {"$ref": "#/$defs/n"}}, [1], ["a"]),
    ({"properties": {"next": {"$ref": "#"}}, "required": ["v"]}, {"v": 1, "next": {"v": 2}}, {"v": 1, "next": {}}),
    ({"$defs": {"a/b~": {"type": "null"}}, "$ref": "#/$defs/a~1b~0"}, None, 1),
]


@pytest.mark.parametrize(("schema", "good", "bad"), FITS, ids=str)
def test_value_is_valid_or_the_place_is_named(schema: dict[str, Any], good: object, bad: object) -> None:
    check_schema(schema)
    assert violation(schema, good) is None
    found = violation(schema, bad)
    assert found is not None
    assert found.startswith("/")


def test_the_violation_names_place_and_rule() -> None:
    schema = {"properties": {"lines": {"items": {"properties": {"sku": {"type": "string"}}}}}}
    assert violation(schema, {"lines": [{"sku": "a"}, {"sku": 1}]}) == "/lines/1/sku: must be string"


@pytest.mark.parametrize("schema", [{"pattern": "^(a+)+$"}, {"patternProperties": {"^(a+)+$": False}}], ids=str)
def test_patterns_are_accepted_and_not_evaluated(schema: dict[str, Any]) -> None:
    check_schema(schema)
    assert violation(schema, "a" * 100 + "!") is None
    assert violation({**schema, "additionalProperties": False}, {"a" * 100: 1}) is None or "pattern" in schema


@pytest.mark.parametrize(
    "schema",
    [
        [],
        "text",
        {"type": "text"},
        {"type": []},
        {"type": {"a": 1}},
        {"enum": 1},
        {"minimum": "1"},
        {"minLength": 1.5},
        {"multipleOf": 0},
        {"required": "a"},
        {"dependentRequired": {"a": 1}},
        {"items": [1]},
        {"allOf": []},
        {"properties": []},
        {"properties": {"a": 1}},
        {"$ref": "https://example.org/schema.json"},
        {"$ref": "other.json#/a"},
        {"$ref": "#anchor"},
        {"$ref": "#/$defs/missing"},
        {"$ref": 1},
        {"$dynamicRef": "#x"},
        {"default": {"type": 5}, "items": {"$ref": "#/default"}},
        {"properties": {"type": {}}, "items": {"$ref": "#/properties"}},
    ],
    ids=str,
)
def test_bad_schema_is_rejected_when_it_is_saved(schema: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_schema(schema)
    assert (refused.value.code, refused.value.field) == ("topic.schema", "schema")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}] * 9}}, "$ref": "#/$defs/a"},
    ],
    ids=str,
)
def test_endless_schema_is_abandoned(schema: dict[str, Any]) -> None:
    check_schema(schema)
    with pytest.raises(InvalidInput) as refused:
        violation(schema, {"a": 1})
    assert refused.value.code == "topic.schema"


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=10,
)
_keywords = st.sampled_from(
    [
        "type",
        "enum",
        "const",
        "minimum",
        "multipleOf",
        "minLength",
        "items",
        "prefixItems",
        "contains",
        "uniqueItems",
        "properties",
        "required",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "$ref",
        "$defs",
        "additionalProperties",
        "patternProperties",
        "dependentRequired",
    ]
)


@given(st.dictionaries(_keywords, _values | st.dictionaries(_keywords, _values, max_size=3), max_size=4), _values)
def test_any_schema_is_rejected_or_evaluated(schema: dict[str, Any], value: object) -> None:
    with contextlib.suppress(InvalidInput):
        check_schema(schema)
        violation(schema, value)
