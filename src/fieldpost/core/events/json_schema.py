"""JSON Schema for topics: check a schema, and check an example against it.

Topics use JSON Schema as documentation, so a small part of draft 2020-12 is enough, and it must be safe for schemas
written by strangers: no network (`$ref` only within the schema), no regular expressions (`pattern` and
`patternProperties` are accepted and not evaluated), and a bound on the work. A validator library would need each of
these limits added, and brings compiled dependencies to every central node.

Evaluated: type, enum, const, the limits of numbers, texts, arrays and objects, properties, required,
additionalProperties (unless there are patternProperties), dependentRequired, items, prefixItems, contains, uniqueItems,
allOf, anyOf, oneOf, not, if/then/else, `$ref` to `#` or `#/…`. All other keywords are annotations.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import isfinite
from typing import Any

from fieldpost.core.errors import InvalidInput

STEPS_MAX = 50_000
"""How many times a schema is applied to a value before the check gives up."""
DEPTH_MAX = 100


def _is_number(value: object) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _is_multiple(value: int | float, of: int | float) -> bool:
    return Fraction(str(value)) % Fraction(str(of)) == 0


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "null": lambda v: v is None,
    "boolean": lambda v: isinstance(v, bool),
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "number": _is_number,
    "integer": lambda v: _is_number(v) and (isinstance(v, int) or v.is_integer()),
}
_LIMITS: Sequence[tuple[str, type | None, Callable[[Any, Any], bool], str]] = (
    ("minimum", None, lambda v, limit: v >= limit, "must be at least"),
    ("maximum", None, lambda v, limit: v <= limit, "must be at most"),
    ("exclusiveMinimum", None, lambda v, limit: v > limit, "must be greater than"),
    ("exclusiveMaximum", None, lambda v, limit: v < limit, "must be less than"),
    ("multipleOf", None, _is_multiple, "must be a multiple of"),
    ("minLength", str, lambda v, limit: len(v) >= limit, "length must be at least"),
    ("maxLength", str, lambda v, limit: len(v) <= limit, "length must be at most"),
    ("minItems", list, lambda v, limit: len(v) >= limit, "number of items must be at least"),
    ("maxItems", list, lambda v, limit: len(v) <= limit, "number of items must be at most"),
    ("minProperties", dict, lambda v, limit: len(v) >= limit, "number of properties must be at least"),
    ("maxProperties", dict, lambda v, limit: len(v) <= limit, "number of properties must be at most"),
)
"""Keyword, the type of values it applies to (None for numbers), its condition and its rule."""
_SCHEMAS = ("additionalProperties", "propertyNames", "items", "contains", "not", "if", "then", "else")
_LISTS_OF_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "dependentSchemas")


def check_schema(schema: object) -> None:
    """Raise InvalidInput, naming the place, unless this is a schema that can be evaluated here."""
    if not isinstance(schema, dict):
        raise _bad_schema("", "must be a JSON object")
    checked: set[str] = set()
    references = {"#"}
    while references:
        for reference in references:
            # A reference may lead to a part that no keyword reaches as a schema.
            found = _resolve(schema, reference)
            _check_schema(found, "" if reference == "#" else reference, 0)
        checked |= references
        references = {one for one in _references(schema) if one not in checked}


def violation(schema: Mapping[str, Any], value: object) -> str | None:
    """Place and rule of the first violation of a checked schema; None if the value fits."""
    return _Evaluation(schema).find(schema, value, "", 0)


class _Evaluation:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._steps = 0

    def find(self, schema: Any, value: Any, at: str, depth: int) -> str | None:
        self._spend(1)
        if depth > DEPTH_MAX:
            raise _too_complex()
        if isinstance(schema, bool):
            return None if schema else f"{at or '/'}: is not allowed"
        for rule in (_plain_rule, self._combined, self._of_object, self._of_array):
            found = rule(schema, value, at, depth)
            if found is not None:
                return found
        return None

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > STEPS_MAX:
            raise _too_complex()

    def _fits(self, schema: Any, value: Any, depth: int) -> bool:
        return self.find(schema, value, "", depth + 1) is None

    def _combined(self, schema: Mapping[str, Any], value: Any, at: str, depth: int) -> str | None:
        parts = list(schema.get("allOf", ()))
        if "$ref" in schema:
            parts.append(_resolve(self._root, schema["$ref"]))
        if "if" in schema:
            parts.append(schema.get("then" if self._fits(schema["if"], value, depth) else "else", True))
        for part in parts:
            if (found := self.find(part, value, at, depth + 1)) is not None:
                return found
        if "anyOf" in schema and not any(self._fits(one, value, depth) for one in schema["anyOf"]):
            return f"{at or '/'}: must fit one of anyOf"
        if "oneOf" in schema and sum(self._fits(one, value, depth) for one in schema["oneOf"]) != 1:
            return f"{at or '/'}: must fit exactly one of oneOf"
        if "not" in schema and self._fits(schema["not"], value, depth):
            return f"{at or '/'}: must not fit the schema in not"
        return None

    def _of_object(self, schema: Mapping[str, Any], value: Any, at: str, depth: int) -> str | None:
        if not isinstance(value, dict):
            return None
        needed = [*schema.get("required", ())]
        for name, others in schema.get("dependentRequired", {}).items():
            needed += others if name in value else ()
        for name in needed:
            if name not in value:
                return f"{at or '/'}: property {name!r} is required"
        known = schema.get("properties", {})
        # Without evaluating patterns it is unknown which properties are additional.
        others = True if "patternProperties" in schema else schema.get("additionalProperties", True)
        for name, one in value.items():
            if (found := self.find(known.get(name, others), one, f"{at}/{name}", depth + 1)) is not None:
                return found
            if (found := self.find(schema.get("propertyNames", True), name, f"{at}/{name}", depth + 1)) is not None:
                return found
        for name, part in schema.get("dependentSchemas", {}).items():
            if name in value and (found := self.find(part, value, at, depth + 1)) is not None:
                return found
        return None

    def _of_array(self, schema: Mapping[str, Any], value: Any, at: str, depth: int) -> str | None:
        if not isinstance(value, list):
            return None
        first = schema.get("prefixItems", ())
        for number, one in enumerate(value):
            part = first[number] if number < len(first) else schema.get("items", True)
            if (found := self.find(part, one, f"{at}/{number}", depth + 1)) is not None:
                return found
        if "contains" in schema and not any(self._fits(schema["contains"], one, depth) for one in value):
            return f"{at or '/'}: must contain an item that fits contains"
        if schema.get("uniqueItems"):
            self._spend(len(value) ** 2 // 2)
            if any(_is_same(one, other) for n, one in enumerate(value) for other in value[:n]):
                return f"{at or '/'}: items must be unique"
        return None


def _plain_rule(schema: Mapping[str, Any], value: Any, at: str, _depth: int) -> str | None:
    """The rules that need no other schema."""
    at = at or "/"
    if "type" in schema:
        names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        if not any(_TYPES[name](value) for name in names):
            return f"{at}: must be {' or '.join(names)}"
    if "enum" in schema and not any(_is_same(value, one) for one in schema["enum"]):
        return f"{at}: must be one of the values in enum"
    if "const" in schema and not _is_same(value, schema["const"]):
        return f"{at}: must be the value of const"
    for keyword, kind, fits, rule in _LIMITS:
        is_limited = keyword in schema and (_is_number(value) if kind is None else isinstance(value, kind))
        if is_limited and not fits(value, schema[keyword]):
            return f"{at}: {rule} {schema[keyword]}"
    return None


def _check_schema(schema: object, at: str, depth: int) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise _bad_schema(at, "must be an object, true or false")
    if depth > DEPTH_MAX:
        raise _bad_schema(at, "is nested too deeply")
    _check_keywords(schema, at)
    for keyword in _SCHEMAS:
        if keyword in schema:
            _check_schema(schema[keyword], f"{at}/{keyword}", depth + 1)
    for keyword in _LISTS_OF_SCHEMAS:
        if keyword in schema:
            if not isinstance(schema[keyword], list) or not schema[keyword]:
                raise _bad_schema(f"{at}/{keyword}", "must be a list of schemas")
            for number, one in enumerate(schema[keyword]):
                _check_schema(one, f"{at}/{keyword}/{number}", depth + 1)
    for keyword in _NAMED_SCHEMAS:
        if keyword in schema:
            if not isinstance(schema[keyword], dict):
                raise _bad_schema(f"{at}/{keyword}", "must be an object of schemas")
            for name, one in schema[keyword].items():
                _check_schema(one, f"{at}/{keyword}/{name}", depth + 1)


def _check_keywords(schema: dict[str, Any], at: str) -> None:
    if "type" in schema:
        names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        if not isinstance(names, list) or not names or not all(isinstance(n, str) and n in _TYPES for n in names):
            raise _bad_schema(f"{at}/type", f"must be one or several of {', '.join(_TYPES)}")
    if "enum" in schema and not isinstance(schema["enum"], list):
        raise _bad_schema(f"{at}/enum", "must be a list")
    for keyword, kind, *_ in _LIMITS:
        limit = schema.get(keyword, 1)
        if not _is_number(limit) or (kind is not None and not isinstance(limit, int)):
            raise _bad_schema(f"{at}/{keyword}", "must be a number")
    if not schema.get("multipleOf", 1) > 0:
        raise _bad_schema(f"{at}/multipleOf", "must be greater than 0")
    if not _is_names(schema.get("required", [])):
        raise _bad_schema(f"{at}/required", "must be a list of property names")
    others = schema.get("dependentRequired", {})
    if not isinstance(others, dict) or not all(map(_is_names, others.values())):
        raise _bad_schema(f"{at}/dependentRequired", "must be an object of lists of property names")
    if "$dynamicRef" in schema:
        raise _bad_schema(f"{at}/$dynamicRef", "is not supported; use $ref")
    if not isinstance(schema.get("$ref", ""), str):
        raise _bad_schema(f"{at}/$ref", "must be a text")


def _references(part: object) -> Iterator[str]:
    """Every text under `$ref`, also where it would not be one."""
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for one in part.values():
            yield from _references(one)
    elif isinstance(part, list):
        for one in part:
            yield from _references(one)


def _resolve(root: Mapping[str, Any], reference: str) -> Any:
    """The part of the schema that a reference names."""
    at = "/$ref"
    if reference != "#" and not reference.startswith("#/"):
        raise _bad_schema(at, f"must refer to a part of this schema, as #/$defs/NAME, got {reference[:64]!r}")
    found: Any = root
    for part in reference.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or name not in found:
            raise _bad_schema(at, f"refers to {reference[:64]!r}, which does not exist")
        found = found[name]
    if not isinstance(found, dict | bool):
        raise _bad_schema(at, f"refers to {reference[:64]!r}, which is not a schema")
    return found


def _too_complex() -> InvalidInput:
    return InvalidInput("topic.schema", "schema is too complex to check the example against", field="schema")


def _bad_schema(at: str, rule: str) -> InvalidInput:
    return InvalidInput("topic.schema", f"schema{at[:200]} {rule}", field="schema")


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_same(one: Any, other: Any) -> bool:
    """Equality as in JSON, where 1 and 1.0 are the same and true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(one[name], other[name]) for name in one)
    return bool(one == other)
