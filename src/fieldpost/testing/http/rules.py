"""How the server misbehaves: rules that a test lays before its client talks to the server, or while it does.

    server.on("POST", "/orders").answer(503, headers={"Retry-After": "2"}).times(2)
    server.on(path="/orders").reset()             # it has the request, and the client never learns
    server.on().answer(200, b"x" * 100).drip(0.1)

The rules are asked in the order in which they were laid; the first that matches, and still has turns, says what is
done. A used-up rule is passed over, so two rules in a row make a sequence. No rule: 200 with an empty body.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Self

from fieldpost.testing.misbehaving import Ending, Misbehaving, Waitable


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """One request, as it came."""

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
class HttpReaction:
    """What is done with one request. As it stands here: what a good server does."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    is_silent: bool = False
    ending: Ending = Ending.STAY
    event: Waitable | None = None
    delay_s: float = 0
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


class HttpRule(Misbehaving):
    """What to do with requests of one kind. It does nothing until it is told what: by `answer`, `close`, `delay` …

    The request was taken in, whatever is answered. With a `raw` half of an answer, `then_reset` breaks it off.
    """

    def __init__(
        self, method: str | None, path: str | None, when: Callable[[ReceivedRequest], bool] | None = None
    ) -> None:
        self.hits = 0
        """How often it has acted."""
        self._method = method
        self._path = path
        self._when = when
        self._act: HttpReaction | None = None
        self._times: int | None = None
        self._is_withdrawn = False

    # -- the answer ----------------------------------------------------------------------------------------------------

    def answer(self, status: int, body: bytes | str = b"", headers: Mapping[str, str] | None = None) -> Self:
        """Answer with this status, body and headers."""
        content = body.encode() if isinstance(body, str) else body
        return self._do(status=status, body=content, headers=dict(headers or {}))

    def redirect(self, location: str, status: int = 307) -> Self:
        """Send the client elsewhere."""
        return self.answer(status, headers={"Location": location})

    def huge(self, body_bytes: int, status: int = 200) -> Self:
        """Answer with a body of so many bytes."""
        return self.answer(status, b"x" * body_bytes)

    def raw(self, data: bytes) -> Self:
        """Send these bytes in place of an answer."""
        return self._do(raw=data)

    # -- the time ------------------------------------------------------------------------------------------------------

    def drip(self, seconds: float) -> Self:
        """Let the answer out byte by byte, one in so many seconds of the server's clock."""
        return self._do(drip_s=seconds)

    # -- how often -----------------------------------------------------------------------------------------------------

    def times(self, count: int) -> Self:
        """Act only so many times."""
        self._times = count
        return self

    def withdraw(self) -> None:
        """Act no more."""
        self._is_withdrawn = True

    def take(self, request: ReceivedRequest) -> HttpReaction | None:
        """What to do now, if this rule has a word in it; its turn is then taken."""
        if self._act is None or self._is_withdrawn or (self._times is not None and self.hits >= self._times):
            return None
        if self._method not in (None, request.method) or self._path not in (None, request.path):
            return None
        if self._when is not None and not self._when(request):
            return None
        self.hits += 1
        return self._act

    def _do(self, **changes: Any) -> Self:
        self._act = replace(self._act or HttpReaction(), **changes)
        return self
