"""Views: the JSON form of values, field by field.

A view names the fields that an API shows of a type and the role that each needs. A new field of the type appears
nowhere until a view names it, and a caller without the role of a field gets null. One encoder serves all views, and
the OpenAPI schema derives from the annotations of the type. Field names and types are resolved when a view is made, so
a view of a field that was renamed fails at import.
"""

import types
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from fieldpost.core.actor import Role
from fieldpost.core.times import to_text

JsonSchema = Mapping[str, Any]
"""A JSON Schema, as used by OpenAPI 3.1."""
REFERENCE = "#/components/schemas/{name}"

_SIMPLE: Mapping[object, JsonSchema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
    timedelta: {"type": "number"},
    object: {},
    Any: {},
    msgspec.Raw: {"type": "object"},
}


@dataclass(frozen=True, slots=True)
class ViewField:
    """One field of a view."""

    name: str
    """Its name in JSON."""
    source: "str | Callable[[Any], object]" = ""
    """The attribute path (`record.name`) or a function with an annotated result; the name unless given."""
    view: "View | None" = None
    """The view of a value that is an object, or of each item of a sequence."""
    role: Role = Role.VIEWER
    """The role that the caller needs; others get null."""


class View:
    """The fields that an API shows of one type.

    Fields are given as `ViewField` or as names separated by spaces; `new=path.to.old` renames an attribute.
    """

    def __init__(self, name: str, type_: Any, *fields: str | ViewField, description: str = "") -> None:
        self.name = name
        self.type = type_
        self.description = description
        self.fields = tuple(made for given in fields for made in _fields(given))
        self._schemas = {field.name: _field_schema(type_, field) for field in self.fields}

    def encode(self, value: object, role: Role = Role.VIEWER) -> dict[str, object]:
        """The JSON object of a value, as a caller with this role may see it."""
        return {field.name: _encode_field(field, value, role) for field in self.fields}

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the object; nested views are references."""
        described: dict[str, Any] = {"title": self.name, "type": "object"}
        if self.description:
            described["description"] = self.description
        return described | {"properties": self._schemas, "required": list(self._schemas)}

    @property
    def reference(self) -> JsonSchema:
        return {"$ref": REFERENCE.format(name=self.name)}

    def nested(self) -> "list[View]":
        """This view and all views that its fields use."""
        return [self, *(one for field in self.fields if field.view for one in field.view.nested())]


def listing(name: str, key: str, view: View) -> View:
    """The view of a sequence: an object with one field that holds the items."""
    items: Any = view.type
    return View(name, Sequence[items], ViewField(key, _itself, view))


def within(attribute: str, names: str) -> str:
    """Names of fields that are attributes of one attribute."""
    return " ".join(f"{name}={attribute}.{name}" for name in names.split())


def plain(value: object) -> object:
    """The JSON form of a value without a view; a TypeError for objects, which need one."""
    match value:
        case Enum():
            return value.value
        case None | str() | int() | float() | msgspec.Raw():
            return value
        case datetime():
            return to_text(value)
        case timedelta():
            return value.total_seconds()
        case Mapping():
            return {str(key): plain(one) for key, one in value.items()}
        case list() | tuple() | AbstractSet():
            return [plain(one) for one in value]
        case _:
            raise TypeError(f"{type(value).__name__} needs a view")


def schema_of(type_: Any) -> dict[str, Any]:
    """The JSON Schema of an annotation; a TypeError for classes, which need a view."""
    type_ = getattr(type_, "__supertype__", type_)
    if type_ in _SIMPLE:
        return dict(_SIMPLE[type_])
    origin, arguments = get_origin(type_), get_args(type_)
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(one) for one in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if isinstance(type_, type) and issubclass(type_, Enum):
        return {"type": "string", "enum": [member.value for member in type_]}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of(arguments[1])}
    if isinstance(origin, type) and issubclass(origin, Sequence | AbstractSet):
        return {"type": "array", "items": schema_of(arguments[0])}
    raise TypeError(f"{type_} needs a view")


def _itself(value: Any) -> object:
    return value


def _fields(given: str | ViewField) -> list[ViewField]:
    if isinstance(given, ViewField):
        return [given]
    pairs = (text.partition("=") for text in given.split())
    return [ViewField(name, path or name) for name, _, path in pairs]


def _encode_field(field: ViewField, value: object, role: Role) -> object:
    if not role.includes(field.role):
        return None
    found = field.source(value) if callable(field.source) else _get(value, field.source or field.name)
    if field.view is None or found is None:
        return plain(found)
    if isinstance(found, Sequence):
        return [field.view.encode(one, role) for one in found]
    return field.view.encode(found, role)


def _get(value: Any, path: str) -> Any:
    """The attribute at a path; None where a part of the path is None."""
    for part in path.split("."):
        if value is None:
            return None
        value = getattr(value, part)
    return value


def _field_schema(type_: Any, field: ViewField) -> JsonSchema:
    is_optional = field.role is not Role.VIEWER
    if field.source is _itself:
        annotation = type_
    elif callable(field.source):
        annotation = get_type_hints(field.source)["return"]
    else:
        annotation = type_
        for part in (field.source or field.name).split("."):
            annotation, has_none = _without_none(annotation)
            is_optional = is_optional or has_none
            annotation = _annotation(annotation, part)
    annotation, has_none = _without_none(annotation)
    is_optional = is_optional or has_none
    schema = schema_of(annotation) if field.view is None else _view_schema(annotation, field.view)
    return {"anyOf": [schema, {"type": "null"}]} if is_optional else schema


def _view_schema(annotation: Any, view: View) -> JsonSchema:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return {"type": "array", "items": _view_schema(arguments[0], view)}
    if annotation != view.type:
        raise TypeError(f"{view.name} is a view of {view.type}, not of {annotation}")
    return view.reference


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    others = [one for one in get_args(annotation) if one is not type(None)]
    return Union[tuple(others)], len(others) < len(get_args(annotation))  # noqa: UP007


def _annotation(type_: Any, attribute: str) -> Any:
    hints = _hints(type_)
    if attribute in hints:
        return hints[attribute]
    found = getattr(type_, attribute, None)
    if isinstance(found, property):
        return get_type_hints(found.fget)["return"]
    raise TypeError(f"{type_.__name__} has no field {attribute!r}")


@cache
def _hints(type_: Any) -> dict[str, Any]:
    return get_type_hints(type_)
