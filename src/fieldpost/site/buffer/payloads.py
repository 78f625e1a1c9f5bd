"""What a cached call or a database write is, in the buffer: checked where the script gives it, so that what is buffered
can be carried out later by a process that has nobody to ask.

A payload names its target's definition and never holds an address or a secret. It is JSON, for people to read.
"""

import base64
import binascii
import json as json_module
import math
import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import msgspec

from fieldpost.core.errors import InvalidInput
from fieldpost.core.text import truncate
from fieldpost.site.config.definitions import Database, External, is_name
from fieldpost.site.config.headers import HEADERS_MAX, check_header
from fieldpost.site.config.statements import OPERATION_ID

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
PATH_BYTES_MAX = 2048
QUERY_BYTES_MAX = 8192
CALL_BODY_BYTES_MAX = 1024 * 1024
PARAMETERS_BYTES_MAX = 1024 * 1024
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


def check_call(
    definition: External,
    method: object,
    path: object,
    *,
    query: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
    json: object = None,
    body: str | bytes | None = None,
) -> ExternalCall:
    """The call, or InvalidInput naming the argument and the rule it breaks."""
    if type(method) is not str or method.upper() not in METHODS:
        raise InvalidInput("call.method", f"method must be one of {', '.join(METHODS)}", field="method")
    sent = _check_headers(definition, headers)
    kind = next((sent.pop(name) for name in list(sent) if name.lower() == "content-type"), None)
    if json is not None and body is not None:
        raise InvalidInput("call.body", "body and json cannot both be given", field="body")
    text, is_base64 = "", False
    if json is not None:
        text, kind = _json(json), kind or "application/json"
    elif body is not None:
        text, is_base64 = _check_body(body)
        kind = kind or ("application/octet-stream" if is_base64 else "text/plain; charset=utf-8")
    size = len(text) if is_base64 else len(text.encode())
    if size > CALL_BODY_BYTES_MAX:
        raise InvalidInput(
            "call.too_large", f"the body has {size} bytes as kept, at most {CALL_BODY_BYTES_MAX}", field="body"
        )
    return ExternalCall(
        method=method.upper(),
        path=_check_path(path),
        query=_check_query(query),
        headers=sent,
        body=text,
        is_base64=is_base64,
        content_type=kind,
    )


def check_write(
    definition: Database, statement: object, parameters: Mapping[str, Scalar] | None = None
) -> DatabaseWrite:
    """The write, or InvalidInput naming the argument and the rule it breaks."""
    if type(statement) is not str:
        raise InvalidInput("statement.type", "statement must be a str", field="statement")
    found = definition.statement(statement)
    if found is None:
        raise _undefined(definition, statement)
    given = _check_parameters(parameters)
    if OPERATION_ID in given:
        raise _parameter(OPERATION_ID, "is given by Fieldpost, not by the caller")
    for name in sorted(found.given - set(given)):
        raise _parameter(name, "is missing; the statement needs it")
    for name in sorted(set(given) - found.given):
        raise _parameter(name, "is none of the statement's parameters")
    return DatabaseWrite(statement, given)


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


def _check_path(path: object) -> str:
    if type(path) is not str or not path.startswith("/"):
        raise _path("must be a str that begins with /")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise _path("must not contain a lone surrogate") from None
    if size > PATH_BYTES_MAX:
        raise _path(f"has {size} bytes, at most {PATH_BYTES_MAX}")
    plain = path
    # However often it was encoded: what is decoded on the way must not climb out of the system's URL.
    while (decoded := unquote(plain)) != plain:
        plain = decoded
    if not plain.isprintable() or "\\" in plain:
        raise _path("must not contain control characters or backslashes")
    if any(segment in (".", "..") for segment in plain.split("/")):
        raise _path("must not contain . or .. as a part: it stays below the system's URL")
    if path.startswith("//"):
        raise _path("must not begin with //")
    if "?" in path or "#" in path:
        raise _path("must not contain ? or #; give the query as query")
    if _BAD_PERCENT.search(path):
        raise _path("has a % that begins no %XX")
    return path


def _check_query(query: Mapping[str, object] | None) -> tuple[tuple[str, str], ...]:
    if query is None:
        return ()
    if not isinstance(query, Mapping):
        raise InvalidInput("call.query", f"query must be a mapping, not {type(query).__name__}", field="query")
    pairs = []
    for name, given in query.items():
        if type(name) is not str or not name:
            raise InvalidInput("call.query", "query must have names that are texts", field="query")
        values = given if isinstance(given, Sequence) and not isinstance(given, str | bytes) else (given,)
        for value in values:
            field = f"query.{name[:64]}"
            match value:
                case bool():
                    text = "true" if value else "false"
                case str() | int():
                    text = str(value)
                case float() if math.isfinite(value):
                    text = repr(value)
                case _:
                    raise InvalidInput("call.query", f"{field} must be a text, a number, or true or false", field=field)
            pairs.append((_text(name, field), _text(text, field)))
    if sum(len(name.encode()) + len(value.encode()) for name, value in pairs) > QUERY_BYTES_MAX:
        raise InvalidInput("call.query", f"query has more than {QUERY_BYTES_MAX} bytes", field="query")
    return tuple(pairs)


def _check_headers(definition: External, headers: Mapping[str, str] | None) -> dict[str, str]:
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise InvalidInput(
            "header.invalid", f"headers must be a mapping, not {type(headers).__name__}", field="headers"
        )
    if len(headers) > HEADERS_MAX:
        raise InvalidInput("header.invalid", f"there are more than {HEADERS_MAX} headers", field="headers")
    secret = {name.lower() for name in definition.secret_headers}
    seen: set[str] = set()
    for name, value in headers.items():
        field = f"headers.{str(name)[:64]}" if str(name).isprintable() else "headers"
        check_header(name, value, field)
        if name.lower() in secret:
            raise InvalidInput("header.invalid", f"{field} is set by the definition in site.toml", field=field)
        if name.lower() in seen:
            raise InvalidInput("header.invalid", f"{field} is given twice", field=field)
        seen.add(name.lower())
    return dict(headers)


def _check_body(body: object) -> tuple[str, bool]:
    match body:
        case str():
            return _text(body, "body"), False
        case bytes():
            return base64.b64encode(body).decode("ascii"), True
        case _:
            raise InvalidInput("call.body", f"body must be a str or bytes, not {type(body).__name__}", field="body")


def _json(value: object) -> str:
    try:
        return _text(json_module.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")), "json")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            "json.invalid", f"json cannot be written as JSON: {truncate(str(error), 200)}", field="json"
        ) from None


def _check_parameters(parameters: Mapping[str, Scalar] | None) -> dict[str, Scalar]:
    if parameters is None:
        return {}
    if not isinstance(parameters, Mapping):
        raise InvalidInput(
            "parameter.invalid",
            f"parameters must be a mapping of names to values, not {type(parameters).__name__}",
            field="parameters",
        )
    size = 0
    for name, value in parameters.items():
        if type(name) is not str or not name.isidentifier():
            raise InvalidInput(
                "parameter.invalid", "parameters must have names of letters, digits and _", field="parameters"
            )
        size += len(name) + _parameter_size(name, value)
    if size > PARAMETERS_BYTES_MAX:
        raise InvalidInput(
            "parameter.too_large", f"parameters have {size} bytes, at most {PARAMETERS_BYTES_MAX}", field="parameters"
        )
    return dict(parameters)


def _parameter_size(name: str, value: object) -> int:
    match value:
        case None | bool():
            return 4
        case int():
            if not -(1 << 63) <= value < 1 << 63:
                raise _parameter(name, "is a whole number beyond 64 bits; give it as a text")
            return 20
        case float():
            if not math.isfinite(value):
                raise _parameter(name, f"must be finite, not {value}")
            return 24
        case str():
            if "\x00" in value:
                raise _parameter(name, "must not contain a NUL character")
            return len(_text(value, f"parameters.{name[:64]}").encode())
        case bytes() | bytearray():
            raise _parameter(name, "must not be bytes; give base64 or hex, and decode it in the statement")
        case _:
            raise _parameter(name, f"must be a str, int, float, bool or None, not {type(value).__name__}")


def _text(value: str, field: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput("text.surrogate", f"{field} must not contain a lone surrogate", field=field) from None
    return value


def _undefined(definition: Database, statement: str) -> InvalidInput:
    if is_name(statement) or definition.allows_free_sql:
        known = ", ".join(sorted(definition.statements)) or "none"
        what = (
            f"{truncate(statement, 64)!r} is no statement that database.{definition.name} defines; there are: {known}"
        )
        return InvalidInput("statement.undefined", what, field="statement")
    return InvalidInput(
        "statement.free",
        f"database.{definition.name} takes defined statements alone, by name, and no SQL text",
        hint=f"define it in [database.{definition.name}.statements], or set allows_free_sql = true",
        field="statement",
    )


def _parameter(name: str, rule: str) -> InvalidInput:
    field = f"parameters.{name[:64]}"
    return InvalidInput("parameter.invalid", f"{field} {rule}", field=field)


def _path(rule: str) -> InvalidInput:
    return InvalidInput("call.path", f"path {rule}", field="path")


def _corrupt(error: Exception) -> InvalidInput:
    return InvalidInput("message.corrupt", f"the buffered payload cannot be read: {truncate(str(error), 200)}")


_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_encoder = msgspec.json.Encoder()
_call: msgspec.json.Decoder[ExternalCall] = msgspec.json.Decoder(ExternalCall)
_write: msgspec.json.Decoder[DatabaseWrite] = msgspec.json.Decoder(DatabaseWrite)
