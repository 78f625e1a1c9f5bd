"""A small client of central's API, for the commands that speak to it.

The address comes from --url or FIELDPOST_URL, else from the profile; the token from FIELDPOST_TOKEN, from a file, or
from the profile of that address, and never from the command line, where every user of the machine could read it.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from ssl import SSLCertVerificationError
from typing import Annotated, Any
from urllib.parse import quote, urlencode, urlsplit

import typer

from fieldpost.cli import profiles
from fieldpost.core.errors import (
    ConfigError,
    Conflict,
    Denied,
    FieldpostError,
    InvalidInput,
    NotFound,
    Unavailable,
)

URL_DEFAULT = "http://127.0.0.1:8025"
TOKEN_FILE_DEFAULT = Path("fieldpost-data/api-token")
TIMEOUT_S = 30.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
PIECE_BYTES = 64 * 1024


def _url(context: typer.Context, parameter: typer.CallbackParam, value: str) -> str:
    """What was given, else the profile's."""
    assert parameter.name is not None
    source = context.get_parameter_source(parameter.name)
    if source is None or source.name != "DEFAULT" or context.resilient_parsing:
        return value
    profile = profiles.present()
    return value if profile is None else profile.url


UrlOption = Annotated[
    str,
    typer.Option("--url", envvar="FIELDPOST_URL", help="Central's address, unless a profile has it.", callback=_url),
]
TokenFileOption = Annotated[
    Path,
    typer.Option(
        "--token-file",
        envvar="FIELDPOST_TOKEN_FILE",
        help="The file with the API token, unless FIELDPOST_TOKEN is set or a profile has it.",
    ),
]
RetryOption = Annotated[
    str | None,
    typer.Option(
        help="When to try again: fixed:60s:10, schedule:15m,30m,1h or exponential:30s:8; else the next rule up.",
        show_default=False,
    ),
]

JsonAnswer = dict[str, Any]


@dataclass(frozen=True)
class Client:
    """Central's API at this address, with this token."""

    url: str
    token_file: Path
    timeout_s: float = TIMEOUT_S
    token: str | None = None
    """Instead of what the environment, the file or the profile says."""

    def get(self, *path: str, **query: str | int | list[str] | None) -> JsonAnswer:
        """The answer to GET /api/v1/<path>; query parameters that are None are left out."""
        given = {name: value for name, value in query.items() if value is not None}
        return self._ask("GET", path, query=urlencode(given, doseq=True))

    def post(self, *path: str, body: object, headers: dict[str, str] | None = None) -> JsonAnswer:
        return self._ask("POST", path, body, headers=headers)

    def patch(self, *path: str, body: object) -> JsonAnswer:
        return self._ask("PATCH", path, body)

    def delete(self, *path: str) -> None:
        self._ask("DELETE", path)

    def get_text(self, *path: str, **query: str) -> str:
        """An answer that is a file."""
        return self._exchange("GET", path, query=urlencode(query)).decode("utf-8")

    def pieces(self, *path: str, **query: str | int | list[str] | None) -> Iterator[bytes]:
        """A file that may be large, piece by piece as it comes."""
        given = {name: value for name, value in query.items() if value is not None}
        with self._sent("GET", path, query=urlencode(given, doseq=True)) as response:
            while True:
                with self._reached():
                    piece = response.read1(PIECE_BYTES)
                if not piece:
                    return
                yield piece

    def post_file(self, *path: str, content: bytes, content_type: str, **query: str) -> JsonAnswer:
        """The answer to a file sent as it is."""
        return _parse(self._exchange("POST", path, content, content_type, urlencode(query)))

    def _ask(
        self,
        method: str,
        path: tuple[str, ...],
        body: object = None,
        query: str = "",
        headers: dict[str, str] | None = None,
    ) -> JsonAnswer:
        content = None if body is None else json.dumps(body).encode()
        return _parse(self._exchange(method, path, content, "application/json", query, headers))

    def _exchange(
        self,
        method: str,
        path: tuple[str, ...],
        content: bytes | None = None,
        content_type: str = "application/json",
        query: str = "",
        headers: dict[str, str] | None = None,
    ) -> bytes:
        """What central answers, or the error that it answers with."""
        with self._sent(method, path, content, content_type, query, headers) as response, self._reached():
            return response.read(ANSWER_BYTES_MAX)

    @contextmanager
    def _sent(
        self,
        method: str,
        path: tuple[str, ...],
        content: bytes | None = None,
        content_type: str = "application/json",
        query: str = "",
        headers: dict[str, str] | None = None,
    ) -> Iterator[HTTPResponse]:
        """An answer whose head has come and is no error."""
        from fieldpost.link.endpoint import check_central_url

        url = urlsplit(check_central_url(self.url))
        assert url.hostname is not None
        target = "/".join([f"{url.path}/api/v1", *(quote(part, safe="") for part in path)])
        headers = {"Authorization": f"Bearer {self._token()}", **(headers or {})}
        if content is not None:
            headers["Content-Type"] = content_type
        kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
        connection = kind(url.hostname, url.port, timeout=self.timeout_s)
        try:
            with self._reached():
                connection.request(method, f"{target}?{query}" if query else target, content, headers)
                response = connection.getresponse()
                problem = response.read(ANSWER_BYTES_MAX) if response.status >= 400 else b""
            if response.status >= 400:
                raise _error(response.status, problem)
            yield response
        finally:
            connection.close()

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Around whatever the network may break."""
        try:
            yield
        except SSLCertVerificationError as error:
            raise Unavailable(
                "central.unreachable",
                f"central at {self.url} shows a certificate that is not trusted here: {error.verify_message}",
                hint="if it is from an authority of your own, name that one's file: SSL_CERT_FILE=ca.pem fieldpost …",
            ) from None
        except (OSError, HTTPException) as error:
            raise Unavailable(
                "central.unreachable",
                f"central at {self.url} cannot be reached: {str(error) or type(error).__name__}",
                hint="is `fieldpost central` running, and is --url right?",
            ) from None

    def _token(self) -> str:
        token = self.token or os.environ.get("FIELDPOST_TOKEN") or self._of_profile() or token_in(self.token_file)
        if not token.isascii() or not token.isprintable() or " " in token:
            raise ConfigError("cli.token", "the API token holds characters that no token has")
        return token

    def _of_profile(self) -> str | None:
        """The profile's token, where no other file was named and the profile is for this very address."""
        profile = profiles.present() if self.token_file == TOKEN_FILE_DEFAULT else None
        return None if profile is None or profile.url != self.url else profile.token


def token_in(file: Path) -> str:
    """The token that this file holds."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            "cli.no_token",
            f"there is no API token: {file} cannot be read ({reason})",
            hint="fieldpost login URL, or set FIELDPOST_TOKEN, or --token-file to what central's first start wrote",
        ) from None


_KINDS: dict[int, type[FieldpostError]] = {401: Denied, 403: Denied, 404: NotFound, 409: Conflict}


def _parse(content: bytes) -> JsonAnswer:
    """The JSON object of an answer; none for an empty one."""
    if not content:
        return {}
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Unavailable("central.unusable", "what answered does not speak Fieldpost's API")
    return answer


def _error(status: int, content: bytes) -> FieldpostError:
    try:
        answer = _parse(content)
    except Unavailable:
        return Unavailable("central.unusable", f"what answered (HTTP {status}) does not speak Fieldpost's API")
    kind = _KINDS.get(status, InvalidInput if status < 500 else Unavailable)
    code, detail = str(answer.get("code", "central.error")), str(answer.get("detail", f"HTTP {status}"))
    if found := answer.get("correlation_id"):
        detail = f"{detail} (correlation id {found})"
    return kind(code, detail, hint=answer.get("hint"), field=answer.get("field"))
