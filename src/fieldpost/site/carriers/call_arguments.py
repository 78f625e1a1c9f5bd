"""Checks the arguments of an external call when the script makes it, so that the agent can carry it out later."""

import base64
import json as json_module
import math
import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from fieldpost.core.errors import InvalidInput
from fieldpost.core.text import truncate
from fieldpost.site.carriers.payloads import ExternalCall, check_unicode
from fieldpost.site.config.external import External
from fieldpost.site.config.headers import HEADERS_MAX, check_header, refused_header

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
PATH_BYTES_MAX = 2048
QUERY_BYTES_MAX = 8192
CALL_BODY_BYTES_MAX = 1024 * 1024

_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


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
    """The checked call. Raises InvalidInput naming the argument and its rule."""
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
            "call.too_large", f"body must be at most {CALL_BODY_BYTES_MAX} bytes as stored, got {size}", field="body"
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


def _check_path(path: object) -> str:
    if type(path) is not str or not path.startswith("/"):
        raise _path("must be a str that starts with /")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise _path("must not contain a lone surrogate") from None
    if size > PATH_BYTES_MAX:
        raise _path(f"must be at most {PATH_BYTES_MAX} bytes, got {size}")
    plain = path
    # Decode repeatedly: a path that is decoded on the way must not leave the system's URL.
    while (decoded := unquote(plain)) != plain:
        plain = decoded
    if not plain.isprintable() or "\\" in plain:
        raise _path("must not contain control characters or backslashes")
    # Some servers cut a segment at its first semicolon before they resolve "..".
    if any(segment.partition(";")[0] in (".", "..") for segment in plain.split("/")):
        raise _path("must not contain . or .. as a segment: it must stay below the system's URL")
    if path.startswith("//"):
        raise _path("must not start with //")
    if "?" in path or "#" in path:
        raise _path("must not contain ? or #; pass the query as query")
    if _BAD_PERCENT.search(path):
        raise _path("has a % that is not followed by two hex digits")
    return path


def _check_query(query: Mapping[str, object] | None) -> tuple[tuple[str, str], ...]:
    if query is None:
        return ()
    if not isinstance(query, Mapping):
        raise InvalidInput("call.query", f"query must be a mapping, not {type(query).__name__}", field="query")
    pairs = []
    for name, given in query.items():
        if type(name) is not str or not name:
            raise InvalidInput("call.query", "query must have non-empty strings as names", field="query")
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
                    raise InvalidInput("call.query", f"{field} must be a string, a number or a boolean", field=field)
            pairs.append((check_unicode(name, field), check_unicode(text, field)))
    if sum(len(name.encode()) + len(value.encode()) for name, value in pairs) > QUERY_BYTES_MAX:
        raise InvalidInput("call.query", f"query must be at most {QUERY_BYTES_MAX} bytes", field="query")
    return tuple(pairs)


def _check_headers(definition: External, headers: Mapping[str, str] | None) -> dict[str, str]:
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise refused_header("headers", f"must be a mapping, not {type(headers).__name__}")
    if len(headers) > HEADERS_MAX:
        raise refused_header("headers", f"must be at most {HEADERS_MAX}, got {len(headers)}")
    secret = {name.lower() for name in definition.secret_headers}
    seen: set[str] = set()
    for name, value in headers.items():
        field = f"headers.{str(name)[:64]}" if str(name).isprintable() else "headers"
        check_header(name, value, field)
        if name.lower() in secret:
            raise refused_header(field, "is set by the definition in site.toml")
        if name.lower() in seen:
            raise refused_header(field, "is given twice")
        seen.add(name.lower())
    return dict(headers)


def _check_body(body: object) -> tuple[str, bool]:
    match body:
        case str():
            return check_unicode(body, "body"), False
        case bytes():
            return base64.b64encode(body).decode("ascii"), True
        case _:
            raise InvalidInput("call.body", f"body must be a str or bytes, not {type(body).__name__}", field="body")


def _json(value: object) -> str:
    try:
        text = json_module.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        reason = truncate(str(error), 200)
        raise InvalidInput("json.invalid", f"json cannot be written as JSON: {reason}", field="json") from None
    return check_unicode(text, "json")


def _path(rule: str) -> InvalidInput:
    return InvalidInput("call.path", f"path {rule}", field="path")
