"""Who may use the local API, and what a request may look like.

Two doors. The Unix socket is a file that only the agent's user may open: whoever gets in may use it. The port of
127.0.0.1 can be reached by every user of the machine, and by every page in their browsers: there the token is needed,
and the host that is asked for must be this machine by name, so that a name of somebody else's which was pointed here
(DNS rebinding) is refused. A browser says where its page came from (`Origin`), and no page has business here.
"""

import hmac
import os
import stat
from contextlib import suppress
from pathlib import Path

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from fieldpost.core.errors import ConfigError, Denied, FieldpostError, InvalidInput
from fieldpost.link.credentials import issue, prefix_of
from fieldpost.site.local.errors import http_problem, problem

TOKEN_FILE = "local.token"
BODY_BYTES_MAX = 4 * 1024 * 1024
"""A call's body of 1 MiB fits in here, however much of it JSON has to escape."""
HOSTS = ("127.0.0.1", "localhost", "[::1]")
OPEN_PATHS = ("/openapi.json",)
"""What is served without a token: it tells nothing of this site."""

_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_log = structlog.stdlib.get_logger("fieldpost.site")


def ensure_token(folder: Path) -> str:
    """The token of the local API; made at the first start, readable by the agent's user alone.

    Raises ConfigError when the file cannot be used, or other users can read it.
    """
    file = folder / TOKEN_FILE
    with suppress(FileNotFoundError):
        if file.stat().st_size == 0:
            # Left by a start that a power cut or a full disk ended.
            file.unlink()
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read_token(file)
    except OSError as error:
        raise ConfigError("local.token", f"{file} cannot be made: {error.strerror or error}") from None
    token = issue("local", os.urandom(40)).text
    try:
        with os.fdopen(handle, "w", encoding="ascii") as stream:
            stream.write(token + "\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise ConfigError("local.token", f"{file} cannot be written: {error.strerror or error}") from None
    return token


def guard(token: str, *, is_port: bool) -> Middleware:
    """Lets in whoever may come, and makes a problem of whatever goes wrong behind it."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if is_port:
                _check_host(request)
                if request.path not in OPEN_PATHS:
                    _check_token(request, token)
            answer = await handler(request)
        except FieldpostError as error:
            answer = problem(error)
        except web.HTTPException as error:
            answer = http_problem(error.status)
        except Exception:
            _log.exception("local.failed", method=request.method, path=request.path)
            answer = http_problem(500, "this is a bug; the agent's log tells more")
        answer.headers.update(_HEADERS)
        return answer

    return guarded


async def read_json(request: web.Request) -> bytes:
    """The body of a request that says it is JSON in UTF-8, within the limit."""
    charset = (request.charset or "utf-8").lower()
    if request.content_type != "application/json" or charset not in ("utf-8", "utf8"):
        raise InvalidInput("http.content_type", "the body must be application/json in UTF-8", field="Content-Type")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise InvalidInput("http.content_encoding", "the body must come as it is", field="Content-Encoding")
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise InvalidInput("http.too_large", f"the body has more than {BODY_BYTES_MAX} bytes") from None


def _check_host(request: web.Request) -> None:
    name, _, port = request.headers.get("Host", "").rpartition(":")
    asked = name if port.isdecimal() and name else request.headers.get("Host", "")
    if asked.lower() not in HOSTS:
        raise Denied("local.host", f"this is served as {HOSTS[0]}, not as {asked[:64]!r}", field="Host")
    if "Origin" in request.headers:
        raise Denied("local.origin", "web pages are not served", field="Origin")


def _check_token(request: web.Request, token: str) -> None:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or len(request.headers.getall("Authorization")) != 1:
        raise Denied("auth.missing", "no token was shown", hint=f"Authorization: Bearer and what {TOKEN_FILE} holds")
    if not hmac.compare_digest(given.strip().encode(), token.encode()):
        raise Denied("auth.unknown", "this token is not the one of this site's local API")


def _read_token(file: Path) -> str:
    try:
        mode = file.stat().st_mode
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("local.token", f"{file} cannot be read: {error}") from None
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError("local.token_open", f"{file} is open to other users", hint=f"chmod 600 {file}")
    if prefix_of(token, "local") is None:
        raise ConfigError("local.token", f"{file} holds no token", hint="remove it; the next start makes a new one")
    return token
