"""Bytes to message and back.

Decoding is strict before it is typed: duplicate keys, NaN, numbers beyond measure, absurd depth and anything but UTF-8
are refused, since two parsers that read such a message differently would store different things.
"""

import json
from typing import Any, NoReturn, TypeVar

import msgspec

from fieldpost.core.errors import InvalidInput
from fieldpost.link.messages import FRAME_BYTES_MAX, Message

T = TypeVar("T")

_encoder = msgspec.json.Encoder()
_message: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def encode(message: msgspec.Struct) -> bytes:
    return _encoder.encode(message)


def decode(data: bytes) -> Message:
    """The message, or InvalidInput saying what is wrong and where."""
    check_json(data)
    try:
        return _message.decode(data)
    except msgspec.DecodeError as error:
        raise InvalidInput("link.invalid", f"the message does not fit the protocol: {error}") from None


def decode_as(data: bytes, kind: type[T]) -> T:
    """The same for one kind of struct, for the routes that take or give just that."""
    check_json(data)
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise InvalidInput("link.invalid", f"the message does not fit the protocol: {error}") from None


def check_json(data: bytes, bytes_max: int = FRAME_BYTES_MAX) -> None:
    """Raise InvalidInput unless these bytes are one well-formed JSON value that every parser reads the same way."""
    if len(data) > bytes_max:
        raise InvalidInput("link.too_large", f"the message has {len(data)} bytes, at most {bytes_max} are taken")
    try:
        _strict.decode(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidInput("json.not_utf8", f"the message is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise InvalidInput("json.too_deep", "the message is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise InvalidInput("json.malformed", f"the message is not JSON: {error.msg} at {error.pos}") from None
    except ValueError:
        raise InvalidInput("json.number", "the message holds a number beyond measure") from None


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput("json.duplicate_key", f"the key {twice[:64]!r} occurs twice", field=twice[:64])
    return fields


def _refuse_constant(text: str) -> NoReturn:
    raise InvalidInput("json.number", f"{text} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise InvalidInput("json.number", f"the number {text[:32]} is beyond measure")
    return number


_strict = json.JSONDecoder(object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant, parse_float=_finite)
