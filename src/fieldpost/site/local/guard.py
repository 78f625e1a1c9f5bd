"""Access control of the local API, and the checks every request must pass.

The API has two listeners. Only the agent's user can open the Unix socket, so a request there needs no token. The port
on 127.0.0.1 is reachable by every user of the machine and by every page in their browsers. A request there needs the
token; its `Host` must name this machine, which defeats DNS rebinding; and it must not have an `Origin`, which browsers
send with requests from web pages.
"""

import asyncio
import hmac
import os
import stat
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from fieldpost.core.errors import ConfigError, Conflict, Denied, FieldpostError, InvalidInput
from fieldpost.link.credentials import issue, prefix_of
from fieldpost.link.http.problem import MEDIA_TYPE, Problem, http_problem_of, problem_headers, problem_of
from fieldpost.site.config.folder import write_new
from fieldpost.site.local.listener import LocalConnections

TOKEN_FILE = "local.token"
BODY_BYTES_MAX = 4 * 1024 * 1024
"""Large enough for a call's body of 1 MiB with every character escaped in JSON."""
HOSTS = ("127.0.0.1", "localhost", "[::1]")
OPEN_PATHS = ("/openapi.json",)
"""Served without a token; they reveal nothing about this site."""

TIMEOUT_S = web.AppKey("timeout_s", float)
"""How long the body of a request may take."""

_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_log = structlog.stdlib.get_logger("fieldpost.site")


def ensure_token(folder: Path) -> str:
    """The token of the local API. Created at the first start, readable only by the agent's user.

    Raises ConfigError if the file cannot be used or other users can read it.
    """
    file = folder / TOKEN_FILE
    with suppress(FileNotFoundError):
        if file.stat().st_size == 0:
            # An earlier start was cut off by a power failure or a full disk.
            file.unlink()
    token = issue("local", os.urandom(40)).text
    try:
        write_new(file, token + "\n", 0o600)
    except Conflict:
        return _read_token(file)
    return token


def guard(token: str, connections: LocalConnections, *, is_port: bool) -> Middleware:
    """Middleware that checks access and turns every failure into a problem response."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if is_port:
                _check_host(request)
                if request.path not in OPEN_PATHS:
                    _check_token(request, token)
            with connections.working(request):
                answer = await handler(request)
        except FieldpostError as error:
            answer = _response(problem_of(error), problem_headers(error))
        except web.HTTPException as error:
            answer = _response(http_problem_of(error.status))
        except Exception:
            _log.exception("local.failed", method=request.method, path=request.path)
            answer = _response(http_problem_of(500, "internal error; see the agent's log"))
        answer.headers.update(_HEADERS)
        return answer

    return guarded


async def read_json(request: web.Request) -> bytes:
    """The request body. Raises InvalidInput if it is not declared as JSON in UTF-8, is too large or too slow."""
    charset = (request.charset or "utf-8").lower()
    if request.content_type != "application/json" or charset not in ("utf-8", "utf8"):
        raise InvalidInput("http.content_type", "the body must be application/json in UTF-8", field="Content-Type")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise InvalidInput("http.content_encoding", "the body must not be compressed", field="Content-Encoding")
    timeout_s = request.app[TIMEOUT_S]
    try:
        async with asyncio.timeout(timeout_s):
            return await request.read()
    except TimeoutError:
        raise InvalidInput("http.too_slow", f"the body did not arrive within {timeout_s:g} s") from None
    except web.HTTPRequestEntityTooLarge:
        raise InvalidInput("http.too_large", f"the body has more than {BODY_BYTES_MAX} bytes") from None


def _response(body: Problem, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=body.status, headers=headers, content_type=MEDIA_TYPE)


def _check_host(request: web.Request) -> None:
    name, _, port = request.headers.get("Host", "").rpartition(":")
    asked = name if port.isdecimal() and name else request.headers.get("Host", "")
    if asked.lower() not in HOSTS:
        raise Denied("local.host", f"Host must be one of {', '.join(HOSTS)}, got {asked[:64]!r}", field="Host")
    if "Origin" in request.headers:
        raise Denied("local.origin", "requests from web pages are not allowed", field="Origin")


def _check_token(request: web.Request, token: str) -> None:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or len(request.headers.getall("Authorization")) != 1:
        raise Denied(
            "auth.missing",
            "the request has no token",
            hint=f"send Authorization: Bearer with the token in {TOKEN_FILE}",
        )
    if not hmac.compare_digest(given.strip().encode(errors="surrogateescape"), token.encode()):
        raise Denied("auth.unknown", "the token is not the token of this site's local API")


def _read_token(file: Path) -> str:
    try:
        mode = file.stat().st_mode
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("local.token", f"{file} cannot be read: {error}") from None
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError("local.token_open", f"{file} can be read by other users", hint=f"chmod 600 {file}")
    if prefix_of(token, "local") is None:
        raise ConfigError(
            "local.token", f"{file} does not contain a token", hint="remove it; the next start creates a new one"
        )
    return token
