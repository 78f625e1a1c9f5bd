"""Encoding the payload of an event: a Python dict to the JSON text that is stored, published and delivered."""

import json
from collections.abc import Mapping
from typing import Any

from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.event import PAYLOAD_BYTES_MAX

DEPTH_MAX = 64
"""Nested objects and arrays in a payload."""
_dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")).encode
_SIMPLE = (str, int, float, type(None))
_SIMPLE_TYPES = frozenset((str, int, float, bool, type(None)))


def encode_payload(payload: Mapping[str, Any]) -> str:
    """The JSON text, or InvalidInput naming the member and the rule.

    Members are str, int, float, bool, None, and lists, tuples and dicts of these. Other types are rejected rather than
    converted, because they have no obvious text.
    """
    if not isinstance(payload, Mapping):
        raise _invalid(f"payload must be a dict, not {type(payload).__name__}")
    members = payload if type(payload) is dict else dict(payload)
    _check(members, "payload", 1)
    try:
        text = _dumps(members)
    except ValueError as error:
        raise _invalid(f"payload cannot be encoded as JSON: {error}") from None
    if "\\u0000" in text:
        _refuse_nul(members, "payload")
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise _invalid("payload must not contain a lone surrogate", "text.surrogate") from None
    if size > PAYLOAD_BYTES_MAX:
        raise _invalid(f"payload is {size} bytes, at most {PAYLOAD_BYTES_MAX}", "event.payload_too_long")
    return text


def _check(value: Any, path: str, depth: int) -> None:
    """Raise for members that JSON lacks; keys that are not str could make two equal members."""
    if depth > DEPTH_MAX:
        raise _invalid(f"payload must not be nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise _invalid(f"names in {path} must be str, got {key!r:.64}")
            if type(item) not in _SIMPLE_TYPES:
                _check(item, f"{path}.{key:.64}", depth + 1)
    elif isinstance(value, (list, tuple)):
        for at, item in enumerate(value):
            if type(item) not in _SIMPLE_TYPES:
                _check(item, f"{path}[{at}]", depth + 1)
    elif not isinstance(value, _SIMPLE):
        raise _invalid(f"{path} is a {type(value).__name__}, which JSON cannot hold; convert it to str or a number")


def _refuse_nul(value: Any, path: str) -> None:
    """Raise for a NUL character; a backslash followed by `u0000` looks like one in JSON but is not."""
    if isinstance(value, str):
        if "\x00" in value:
            raise _invalid(f"{path} must not contain a NUL character", "text.nul")
    elif isinstance(value, dict):
        for key, item in value.items():
            _refuse_nul(key, path)
            _refuse_nul(item, f"{path}.{key:.64}")
    elif isinstance(value, (list, tuple)):
        for at, item in enumerate(value):
            _refuse_nul(item, f"{path}[{at}]")


def _invalid(message: str, code: str = "event.payload") -> InvalidInput:
    return InvalidInput(code, message, field="payload")
