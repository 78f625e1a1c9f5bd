"""Limits on the number of JSON values in a message, checked before a parser builds them.

A value of two bytes takes fifty in memory, and the strict parser needs microseconds for it, so a small compressed frame
could keep central busy. Each kind of link message has a limit computed from its struct: the number of its rows times
their fields, doubled for optional fields of later versions. The largest message has 8,009 values.
"""

from collections.abc import Hashable
from functools import cache
from typing import cast, get_args

import msgspec
from msgspec import inspect

from fieldpost.core.errors import InvalidInput
from fieldpost.link.messages import ITEMS_MAX, LinkMessage

VALUES_MAX = 100_000
"""The most values in a JSON text that is not a link message, such as a file of lists."""
CELLS_MAX = 15
"""The most entries of an object whose keys are data, as in the rows of a command's result."""
GROWTH = 2
VALUES_MIN = 1_000
"""The limit of messages without rows."""
SMALL_BYTES = 2 * VALUES_MIN
"""A message of this size cannot exceed any limit: a value has at least one byte and a comma or bracket."""


class _Tagged(msgspec.Struct):
    t: str = ""


_tagged = msgspec.json.Decoder(_Tagged)


def check_values(data: bytes, values_max: int = VALUES_MAX) -> int:
    """The number of values, or an upper bound of it; InvalidInput if there are too many."""
    if len(data) <= SMALL_BYTES:
        return 0
    count = _marks(data)
    if count <= values_max:
        return count
    # Commas and brackets inside strings do not count: skip everything between quotation marks.
    plain = data.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') <= 4 * values_max:
        count = sum(map(_marks, plain.split(b'"')[::2]))
        if count <= values_max:
            return count
    raise InvalidInput("json.too_many", f"the message has more than {values_max} values")


def values_max_of(data: bytes) -> int:
    """The limit for this link message, by its tag; the largest one if it has none that is known."""
    try:
        tag = _tagged.decode(data).t
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        tag = ""
    limits = _limits()
    return limits.get(tag) or max(limits.values())


@cache
def values_max_of_kind(kind: Hashable) -> int:
    """The limit for one kind of struct."""
    info = inspect.type_info(kind)
    return max(VALUES_MIN, GROWTH * (_values(info) - 1)) if isinstance(info, inspect.StructType) else VALUES_MAX


@cache
def _limits() -> dict[str, int]:
    return {cast(str, kind.__struct_config__.tag): values_max_of_kind(kind) for kind in get_args(LinkMessage)}


def _values(info: inspect.Type) -> int:
    match info:
        case inspect.StructType(fields=fields):
            return 1 + sum(_values(field.type) for field in fields)
        case inspect.VarTupleType(item_type=item):
            return 1 + ITEMS_MAX * _values(item)
        case inspect.DictType():
            return 1 + CELLS_MAX
        case inspect.UnionType(types=types):
            return max(map(_values, types))
        case _:
            return 1


def _marks(data: bytes) -> int:
    """An upper bound of the number of values: each one but the first follows one of these characters."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")
