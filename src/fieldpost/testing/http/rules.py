"""Rules by which a test makes the server misbehave.

    server.on("POST", "/orders").answer(503, headers={"Retry-After": "2"}).times(2)
    server.on(path="/orders").reset()             # the server has the request, but the client gets no answer
    server.on().answer(200, b"x" * 100).drip(0.1)

Rules are checked in the order in which they were added; the first that matches and is not used up decides. Used-up
rules are skipped, so two rules in a row make a sequence. Without a rule the answer is 200 with an empty body.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Self

from fieldpost.testing.misbehaving import Ending, Misbehaving, Reaction


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """One request as received."""

    number: int
    connection: int
    method: str
    target: str
    """The path with its query, undecoded."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]


@dataclass(frozen=True, slots=True)
class HttpReaction(Reaction):
    """The handling of one request."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    drip_s: float | None = None

    @property
    def answer(self) -> bytes:
        if self.is_silent:
            return b""
        if self.raw is not None:
            return self.raw
        try:
            phrase = HTTPStatus(self.status).phrase
        except ValueError:
            phrase = "Unheard Of"
        headers = {"Content-Length": str(len(self.body))} | dict(self.headers)
        if self.ending is Ending.CLOSE:
            headers["Connection"] = "close"
        head = f"HTTP/1.1 {self.status} {phrase}\r\n" + "".join(f"{name}: {text}\r\n" for name, text in headers.items())
        return head.encode("latin-1") + b"\r\n" + (b"" if self.status in (204, 304) else self.body)


class HttpRule(Misbehaving[ReceivedRequest, HttpReaction]):
    """A rule for matching requests. It has no effect until a method such as `answer`, `close` or `delay` is called.

    The request is recorded in any case. To cut an answer off, send half of it with `raw`, then `then_reset`.
    """

    def __init__(
        self, method: str | None, path: str | None, when: Callable[[ReceivedRequest], bool] | None = None
    ) -> None:
        super().__init__(HttpReaction())
        self._method = method
        self._path = path
        self._when = when
        self._times: int | None = None

    # -- the answer ----------------------------------------------------------------------------------------------------

    def answer(self, status: int, body: bytes | str = b"", headers: Mapping[str, str] | None = None) -> Self:
        """Answer with this status, body and headers."""
        content = body.encode() if isinstance(body, str) else body
        return self._do(status=status, body=content, headers=dict(headers or {}))

    def redirect(self, location: str, status: int = 307) -> Self:
        """Answer with a redirect."""
        return self.answer(status, headers={"Location": location})

    def huge(self, body_bytes: int, status: int = 200) -> Self:
        """Answer with a body of this size."""
        return self.answer(status, b"x" * body_bytes)

    # -- the time ------------------------------------------------------------------------------------------------------

    def drip(self, seconds: float) -> Self:
        """Send the answer byte by byte, one per this many seconds of the server's clock."""
        return self._do(drip_s=seconds)

    # -- how often -----------------------------------------------------------------------------------------------------

    def times(self, count: int) -> Self:
        """Apply the rule at most this many times."""
        self._times = count
        return self

    def _applies(self, event: ReceivedRequest) -> bool:
        if self._times is not None and self.hits >= self._times:
            return False
        if self._method not in (None, event.method) or self._path not in (None, event.path):
            return False
        return self._when is None or self._when(event)
