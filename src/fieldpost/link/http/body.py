"""JSON bodies of requests."""

import re
from typing import Annotated, TypeVar

import msgspec

from fieldpost.core.errors import InvalidInput
from fieldpost.link.codec import check_json

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")
RowVersion = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""The version of a stored object that the caller has seen, in the range of its column."""


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of all request bodies: unknown fields are rejected by name."""


def decode_body(data: bytes, kind: type[S]) -> S:
    """Decode a JSON body as this struct, or raise InvalidInput naming the field."""
    check_json(data)
    return decode_strictly(data, kind)


def decode_strictly(data: bytes | msgspec.Raw, kind: type[T]) -> T:
    """Decode JSON as this type, or raise InvalidInput naming the field.

    For bodies with parts that stay encoded (`msgspec.Raw`): their grammar is checked, but not that they are UTF-8.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput("body.invalid", f"invalid body: {error}", field=_field_of(str(error))) from None
    except RecursionError:
        raise InvalidInput("body.invalid", "invalid body: it is nested too deeply") from None


def _field_of(error: str) -> str | None:
    """The field that msgspec names in its message."""
    at = re.search(r"at `\$\.?([^`]*)`", error)
    named = re.search(r"field `([^`]*)`", error)
    parts = [found[1] for found in (at, named) if found and found[1]]
    return ".".join(parts)[:128] or None
