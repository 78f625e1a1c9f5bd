"""One HTTP attempt over the guarded client: quick tries within a deadline, and a record of what happened.

Shared by the adapters that use HTTP. It sends requests and repeats them; the adapter decides what a status means.
A reused connection that turns out to be closed shows nothing about the receiver: that request is sent again at once, on
a new connection, and does not count as a try.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from yarl import URL

from fieldpost.clock import Clock
from fieldpost.core.delivery.adapter import AttemptPhase
from fieldpost.core.delivery.exchange import (
    BODY_BYTES_KEPT,
    HEADER_CHARACTERS_KEPT,
    HEADERS_KEPT,
    Exchange,
    HttpTry,
)
from fieldpost.core.delivery.quick_tries import QuickTries, is_worth_a_try, next_try_s
from fieldpost.core.frozen import frozen
from fieldpost.core.secret import HIDDEN
from fieldpost.core.text import printable
from fieldpost.outbound.client import HttpAnswer, HttpClient, NoAnswer
from fieldpost.outbound.guard import Blocked
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.progress import HttpPhase
from fieldpost.outbound.retry_after import retry_after_s

RETRY_AFTER_CODES = (429, 503)
RETRY_AFTER_S_MIN = 1.0
RETRY_AFTER_S_MAX = 24 * 3600.0
OUR_PHASES = (HttpPhase.QUEUE, HttpPhase.PROXY, HttpPhase.RESOLVE)
"""A request that fails here was not the receiver's failure."""
PROXY_PHASE = AttemptPhase(
    HttpPhase.PROXY.value, "Reach the proxy", "Check `[outbound] proxy`, its user and its password file."
)


def occurring_phases(phases: Sequence[AttemptPhase], options: OutboundOptions) -> tuple[AttemptPhase, ...]:
    """The phases that occur in this process: behind a proxy names are resolved there."""
    absent = HttpPhase.RESOLVE if options.proxy else HttpPhase.PROXY
    return tuple(phase for phase in phases if phase.name != absent)


@frozen(kw_only=True)
class HttpRequest:
    """The request of an attempt; every try sends the same."""

    url: URL
    headers: Mapping[str, str]
    body: bytes
    method: str = "POST"
    hidden: Collection[str] = ()
    """Names of those headers whose values are credentials."""


@dataclass(slots=True)
class HttpAttempt:
    """The tries of one attempt. `result` is that of the last one."""

    client: HttpClient
    clock: Clock
    ends_at: float
    """The deadline, by the clock's monotonic time."""
    tries: QuickTries
    retry_codes: frozenset[int] = frozenset()
    gate: Callable[[], None] = lambda: None
    transcript: Callable[[str], None] | None = None
    result: HttpAnswer | NoAnswer | Blocked | None = None
    retry_after_s: float | None = None
    """How long the receiver asks to wait, at most a day."""
    _made: list[HttpTry] = field(default_factory=list)

    async def run(self, request: HttpRequest) -> "HttpAttempt":
        """Send the request until a try needs no repeat or none is allowed. Raises ClaimLost from the gate."""
        began = self.clock.monotonic()
        while True:
            await self._try(request, began)
            if not self._is_worth_another():
                return self
            wait_s = next_try_s(self.tries, len(self._made), self.clock.monotonic() - began)
            if wait_s is None or self.clock.monotonic() + wait_s >= self.ends_at:
                return self
            await self.clock.sleep(wait_s)

    def exchange(self, request: HttpRequest, scrub: Callable[[str], str]) -> Exchange:
        """The stored record. The answer is scrubbed before it is truncated: half a secret would not be recognized."""
        shown = {**request.headers, **dict.fromkeys(request.hidden, HIDDEN)}
        if not isinstance(answer := self.result, HttpAnswer):
            return Exchange(url=str(request.url), tries=tuple(self._made), request_headers=shown)
        headers = list(answer.headers.items())[:HEADERS_KEPT]
        return Exchange(
            url=str(request.url),
            tries=tuple(self._made),
            request_headers=shown,
            status=answer.status,
            response_headers={name: scrub(printable(text))[:HEADER_CHARACTERS_KEPT] for name, text in headers},
            response_body=_beginning(scrub(answer.body.decode("utf-8", "replace"))),
        )

    async def _try(self, request: HttpRequest, began: float) -> None:
        for is_last in (False, True):
            self.gate()
            started = self.clock.monotonic()
            self.result = await self._send(request, self.ends_at - started)
            if is_last or not (isinstance(self.result, NoAnswer) and self.result.is_stale):
                break
        self._note(started - began, self.clock.monotonic() - started)

    async def _send(self, request: HttpRequest, timeout_s: float) -> HttpAnswer | NoAnswer | Blocked:
        self._say(f"> {request.method} {request.url}")
        try:
            answer = await self.client.request(
                request.method,
                request.url,
                headers=request.headers,
                body=request.body,
                timeout_s=max(timeout_s, 0.001),
            )
        except (NoAnswer, Blocked) as error:
            self._say(f"< {error}")
            return error
        self._say(f"< {answer.status}")
        return answer

    def _note(self, offset_s: float, duration_s: float) -> None:
        answer = self.result
        self.retry_after_s = None
        if isinstance(answer, HttpAnswer) and answer.status in RETRY_AFTER_CODES:
            asked_s = retry_after_s(answer.headers.get("Retry-After"), self.clock.now())
            if asked_s is not None:
                self.retry_after_s = min(max(asked_s, RETRY_AFTER_S_MIN), RETRY_AFTER_S_MAX)
        self._made.append(
            HttpTry(
                offset_ms=round(offset_s * 1000),
                duration_ms=round(duration_s * 1000),
                status=answer.status if isinstance(answer, HttpAnswer) else None,
                error=None if isinstance(answer, HttpAnswer) else str(answer),
                phase=answer.phase.value if isinstance(answer, NoAnswer) else None,
            )
        )

    def _is_worth_another(self) -> bool:
        match self.result:
            case HttpAnswer(status=status):
                return self.retry_after_s is None and is_worth_a_try(status, self.retry_codes)
            case NoAnswer() as error:
                return not error.is_timeout and error.phase not in OUR_PHASES
            case _:
                return False

    def _say(self, line: str) -> None:
        if self.transcript is not None:
            self.transcript(line)


def _beginning(body: str) -> str:
    """As much of a body as is kept."""
    return body.encode()[:BODY_BYTES_KEPT].decode("utf-8", "ignore").replace("\x00", "\ufffd")
