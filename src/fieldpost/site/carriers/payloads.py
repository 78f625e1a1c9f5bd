"""The payloads of cached calls as the buffer keeps them: structs, JSON encoding and decoding.

A payload names the definition of its target and never contains an address or a secret. It is JSON, readable for people.
"""

import base64
import binascii

import msgspec

from fieldpost.core.errors import InvalidInput
from fieldpost.core.text import truncate

SUMMARY_BYTES_MAX = 256

Scalar = str | int | float | bool | None
"""The types of a parameter. Pass bytes as base64 or hex text and decode them in the statement."""


class ExternalCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One call of an external system, as buffered."""

    method: str
    path: str
    """The path below the system's URL; starts with a slash."""
    query: tuple[tuple[str, str], ...] = ()
    headers: dict[str, str] = {}
    body: str = ""
    is_base64: bool = False
    """Whether `body` is base64 of a binary body."""
    content_type: str | None = None

    @property
    def content(self) -> bytes:
        """The bytes to send."""
        return base64.b64decode(self.body, validate=True) if self.is_base64 else self.body.encode()


class DatabaseWrite(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One write to a database, as buffered."""

    statement: str
    """The name of a defined statement, or SQL if the connection allows it."""
    parameters: dict[str, Scalar] = {}


def encode(payload: ExternalCall | DatabaseWrite) -> str:
    """The payload as JSON text."""
    return _encoder.encode(payload).decode()


def decode_call(text: str) -> ExternalCall:
    """The decoded payload. Raises InvalidInput if it is corrupt."""
    try:
        call = _call.decode(text)
        _ = call.content
    except (msgspec.DecodeError, binascii.Error, ValueError) as error:
        raise _corrupt(error) from None
    return call


def decode_write(text: str) -> DatabaseWrite:
    """The decoded payload. Raises InvalidInput if it is corrupt."""
    try:
        return _write.decode(text)
    except (msgspec.DecodeError, ValueError) as error:
        raise _corrupt(error) from None


def target_summary(target: str, payload: ExternalCall | DatabaseWrite) -> str:
    """A short text for people: system, method and path of a call; the connection's name of a write."""
    match payload:
        case ExternalCall():
            return truncate(f"{target} {payload.method} {payload.path}", SUMMARY_BYTES_MAX)
        case DatabaseWrite():
            return truncate(target, SUMMARY_BYTES_MAX)


def check_unicode(value: str, field: str) -> str:
    """The text, or InvalidInput if it cannot be encoded as UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput("text.surrogate", f"{field} must not contain a lone surrogate", field=field) from None
    return value


def _corrupt(error: Exception) -> InvalidInput:
    return InvalidInput("message.corrupt", f"the buffered payload cannot be read: {truncate(str(error), 200)}")


_encoder = msgspec.json.Encoder()
_call: msgspec.json.Decoder[ExternalCall] = msgspec.json.Decoder(ExternalCall)
_write: msgspec.json.Decoder[DatabaseWrite] = msgspec.json.Decoder(DatabaseWrite)
