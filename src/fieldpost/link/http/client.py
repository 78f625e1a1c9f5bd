"""The blocking HTTP client, for commands and scripts that have no event loop.

`open_connection`, `exchange` and `unreachable_as` are the parts; `ApiClient` speaks central's JSON API with them. The
standard library's client is enough for one request at a time and costs a script little to import.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from ssl import SSLCertVerificationError
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from fieldpost.core.errors import Conflict, Denied, FieldpostError, InvalidInput, NotFound, Unavailable
from fieldpost.link.endpoint import Endpoint
from fieldpost.system_error import reason_of

TIMEOUT_S = 30.0
RESPONSE_BYTES_MAX = 64 * 1024 * 1024
CHUNK_BYTES = 64 * 1024

JsonObject = dict[str, Any]
Query = str | int | list[str] | None

_KINDS: dict[int, type[FieldpostError]] = {401: Denied, 403: Denied, 404: NotFound, 409: Conflict}


def open_connection(endpoint: Endpoint, timeout_s: float) -> HTTPConnection:
    """A connection to the endpoint that connects at its first request."""
    parts = urlsplit(endpoint.url)
    assert parts.hostname is not None
    if (tls := endpoint.tls()) is None:
        return HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
    return HTTPSConnection(parts.hostname, parts.port, timeout=timeout_s, context=tls)


def send_request(
    connection: HTTPConnection,
    endpoint: Endpoint,
    method: str,
    path: str,
    content: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> HTTPResponse:
    """Send an authorized request for a path below the endpoint's URL; returns when the response's head is there."""
    sent = {"Authorization": endpoint.authorization, "Accept": "application/json", **(headers or {})}
    if content is not None:
        sent.setdefault("Content-Type", "application/json")
    connection.request(method, urlsplit(endpoint.url).path + path, content, sent)
    return connection.getresponse()


def read_bounded(response: HTTPResponse, bytes_max: int) -> bytes:
    """The whole body; OSError if it is longer than this."""
    content = response.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise OSError(f"the response is longer than {bytes_max} bytes")
    return content


@contextmanager
def unreachable_as(code: str, endpoint: Endpoint, *, trust_hint: str, hint: str) -> Iterator[None]:
    """Turn failures of the network into Unavailable with this code."""
    try:
        yield
    except SSLCertVerificationError as error:
        message = f"the certificate of central at {endpoint.url} is not trusted: {error.verify_message}"
        raise Unavailable(code, message, hint=trust_hint) from None
    except (OSError, HTTPException) as error:
        raise Unavailable(code, f"cannot reach central at {endpoint.url}: {reason_of(error)}", hint=hint) from None


@dataclass(frozen=True)
class ApiClient:
    """Central's HTTP API: JSON in and out; problem details are raised as the FieldpostError that they describe."""

    endpoint: Endpoint
    timeout_s: float = TIMEOUT_S

    @property
    def url(self) -> str:
        return self.endpoint.url

    def get(self, *path: str, **query: Query) -> JsonObject:
        """GET /api/v1/<path>. Query parameters that are None are left out."""
        return _parse(self._read(self._response("GET", path, query=query)))

    def post(self, *path: str, body: object, headers: Mapping[str, str] | None = None) -> JsonObject:
        return _parse(self._read(self._response("POST", path, json.dumps(body).encode(), headers)))

    def put(self, *path: str, body: object) -> JsonObject:
        return _parse(self._read(self._response("PUT", path, json.dumps(body).encode())))

    def patch(self, *path: str, body: object) -> JsonObject:
        return _parse(self._read(self._response("PATCH", path, json.dumps(body).encode())))

    def delete(self, *path: str) -> None:
        self._read(self._response("DELETE", path))

    def get_file(self, *path: str, **query: Query) -> bytes:
        """A response that is a file."""
        return self._read(self._response("GET", path, query=query))

    def post_file(self, *path: str, content: bytes, content_type: str, **query: Query) -> JsonObject:
        return _parse(self._read(self._response("POST", path, content, {"Content-Type": content_type}, query)))

    def stream(self, *path: str, **query: Query) -> Iterator[bytes]:
        """A large file, in chunks as they arrive."""
        with self._response("GET", path, query=query) as response:
            while True:
                with self._network():
                    chunk = response.read1(CHUNK_BYTES)
                if not chunk:
                    return
                yield chunk

    def _read(self, exchange: AbstractContextManager[HTTPResponse]) -> bytes:
        with exchange as response, self._network():
            return read_bounded(response, RESPONSE_BYTES_MAX)

    @contextmanager
    def _response(
        self,
        method: str,
        path: tuple[str, ...],
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, Query] | None = None,
    ) -> Iterator[HTTPResponse]:
        """A successful response before its body is read."""
        target = "/".join(["/api/v1", *(quote(part, safe="") for part in path)])
        if given := {name: value for name, value in (query or {}).items() if value is not None}:
            target += "?" + urlencode(given, doseq=True)
        connection = open_connection(self.endpoint, self.timeout_s)
        try:
            with self._network():
                response = send_request(connection, self.endpoint, method, target, content, headers)
                problem = read_bounded(response, RESPONSE_BYTES_MAX) if response.status >= 400 else b""
            if response.status >= 400:
                raise _error(response.status, problem)
            yield response
        finally:
            connection.close()

    def _network(self) -> Any:
        return unreachable_as(
            "central.unreachable",
            self.endpoint,
            trust_hint="for a certificate authority of your own, set SSL_CERT_FILE=ca.pem",
            hint="check that `fieldpost central` is running and that --url is right",
        )


def _parse(content: bytes) -> JsonObject:
    """The JSON object of a response; an empty body is an empty object."""
    if not content:
        return {}
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Unavailable("central.unusable", "the server does not speak Fieldpost's API")
    return answer


def _error(status: int, content: bytes) -> FieldpostError:
    try:
        answer = _parse(content)
    except Unavailable:
        return Unavailable("central.unusable", f"the server (HTTP {status}) does not speak Fieldpost's API")
    kind = _KINDS.get(status, InvalidInput if status < 500 else Unavailable)
    code, detail = str(answer.get("code", "central.error")), str(answer.get("detail", f"HTTP {status}"))
    if found := answer.get("correlation_id"):
        detail = f"{detail} (correlation id {found})"
    return kind(code, detail, hint=answer.get("hint"), field=answer.get("field"))
