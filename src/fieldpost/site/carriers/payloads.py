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
"""What a parameter may be. Bytes are given as text, in base64 or hex, and decoded by the statement."""


class ExternalCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One call of an external system."""

    method: str
    path: str
    """Below the system's URL; begins with a slash."""
    query: tuple[tuple[str, str], ...] = ()
    headers: dict[str, str] = {}
    body: str = ""
    is_base64: bool = False
    """Whether the body is bytes that are no text."""
    content_type: str | None = None

    @property
    def content(self) -> bytes:
        """The body as it is sent."""
        return base64.b64decode(self.body, validate=True) if self.is_base64 else self.body.encode()


class DatabaseWrite(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One write through a database connection."""

    statement: str
    """The name of a defined statement, or the SQL itself where the connection allows it."""
    parameters: dict[str, Scalar] = {}


def encode(payload: ExternalCall | DatabaseWrite) -> str:
    """As it stands in the buffer."""
    return _encoder.encode(payload).decode()


def decode_call(text: str) -> ExternalCall:
    """Raises InvalidInput for what no version of ours has written."""
    try:
        call = _call.decode(text)
        _ = call.content
    except (msgspec.DecodeError, binascii.Error, ValueError) as error:
        raise _corrupt(error) from None
    return call


def decode_write(text: str) -> DatabaseWrite:
    """Raises InvalidInput for what no version of ours has written."""
    try:
        return _write.decode(text)
    except (msgspec.DecodeError, ValueError) as error:
        raise _corrupt(error) from None


def target_summary(target: str, payload: ExternalCall | DatabaseWrite) -> str:
    """What people are shown of a call: the system, the method and the path; of a write the connection's name."""
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
