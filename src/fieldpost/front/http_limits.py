"""Limits on HTTP connections, enforced before a request is processed.

uvicorn limits neither the number of connections, nor the size of a request head, nor the time that a request may take,
so a few slow senders could block central. `BoundedHttp` adds these limits to uvicorn's protocol, and
`websocket_limits.py` adds them for the link:

- a request head has a maximum size and a deadline; an idle connection has a deadline;
- the deadline of a body or frame moves with every byte that arrives, so a slow line may take as long as it needs but a
  dripping one is cut off; the slowest accepted rate is the one at which a sender gives up;
- after an early answer, central discards further bytes for a few seconds, so that the client reads the answer, and
  then closes the connection;
- a client that does not read its answer has a deadline too, which moves with the bytes that leave the buffer; so has a
  connection that is being closed (`sweep`, called by the server twice per second, so that requests pay nothing for it);
- connections that `admission.py` does not admit get 503.
"""

from asyncio import AbstractEventLoop, TimerHandle
from asyncio.transports import BaseTransport, Transport
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import structlog
import uvicorn
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from fieldpost.core.errors import FieldpostError, InvalidInput, Unavailable
from fieldpost.front.admission import STATE_KEY, Admission, OpenConnection, busy
from fieldpost.front.guard import SECURITY_HEADERS, TLS_HEADERS
from fieldpost.front.http.problems import problem
from fieldpost.front.options import FrontOptions
from fieldpost.link.messages import FRAME_BYTES_MAX
from fieldpost.link.session import RATE_FLOOR

HEAD_BYTES_MAX = 16 * 1024
REQUEST_BYTES_MAX = 2 * FRAME_BYTES_MAX
"""More than any accepted body with its framing; a client that sends more ignores the answer."""
PIPELINED_MAX = 8
WRITE_BYTES = 64 * 1024
"""How many bytes wait in this process for a client to read before the answer pauses."""
LINGER_S = 5.0
SITE_TOKEN = b"fp_site_"
LOG_EVERY_S = 10.0

log = structlog.get_logger()


class LimitedConfig(uvicorn.Config):
    """uvicorn's configuration with the options of the front."""

    def __init__(self, app: Any, options: FrontOptions, **settings: Any) -> None:
        super().__init__(app, **settings)
        self.options = options
        self.admission = Admission(options)
        self.on_refused: Callable[[str], None] = lambda code: None
        """Counts a refused connection by its code."""
        self.problem_at: Callable[[str, FieldpostError], Response] = lambda path, error: problem(error)
        """The answer to a request that is rejected before the application sees it; its path may be incomplete."""
        self._logged_at: dict[str, float] = {}
        self._unlogged: Counter[str] = Counter()

    def log_refusal(self, code: str, client: tuple[str, int] | None, now: float) -> None:
        """Log refused connections: at most one line per code in 10 s, so that a flood cannot fill the log."""
        self._unlogged[code] += 1
        self.on_refused(code)
        if now - self._logged_at.get(code, -LOG_EVERY_S) >= LOG_EVERY_S:
            self._logged_at[code] = now
            count = self._unlogged.pop(code)
            log.info("connection.refused", code=code, client=client[0] if client else None, count=count)


class ReadDeadline:
    """Calls `on_late` at the deadline; with a rate, every byte that arrives extends it."""

    def __init__(self, loop: AbstractEventLoop, on_late: Callable[[], None]) -> None:
        self._loop = loop
        self._on_late = on_late
        self._timer: TimerHandle | None = None
        self._until = 0.0
        self._byte_s = 0.0

    def set(self, seconds: float, rate: float | None = None) -> None:
        self.clear()
        self._until = self._loop.time() + seconds
        self._byte_s = 0.0 if rate is None else 1 / rate
        self._timer = self._loop.call_later(seconds, self._check)

    @property
    def is_set(self) -> bool:
        return self._timer is not None

    def arrived(self, size: int) -> None:
        self._until += size * self._byte_s

    def clear(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        left_s = self._until - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._check)
        else:
            self._timer = None
            self._on_late()


class WriteDeadline:
    """The deadline of a peer that does not read, and of a connection that does not end after its close.

    It moves with the bytes that leave the buffer, but is never more than the grace time ahead: bytes that were read
    before do not pay for a long pause.
    """

    def __init__(self, grace_s: float, close_s: float) -> None:
        self._grace_s = grace_s
        self._close_s = close_s
        """The grace time while a closed connection has bytes left to send."""
        self._until: float | None = None
        self._present_s = 0.0
        self._left = 0

    def reset(self) -> None:
        """The peer has read enough for now."""
        self._until = None

    def is_late(self, transport: Transport, now: float, *, is_paused: bool) -> bool:
        is_closing = transport.is_closing()
        if not is_paused and not is_closing:
            self._until = None
            return False
        left = transport.get_write_buffer_size()
        grace_s = self._grace_s if not is_closing else self._close_s if left else LINGER_S
        if self._until is None or grace_s != self._present_s:
            self._until, self._present_s = now + grace_s, grace_s
        elif left < self._left:
            self._until = min(now + grace_s, self._until + (self._left - left) / RATE_FLOOR)
        self._left = left
        return now > self._until


class BoundedHttp(HttpToolsProtocol):
    """One HTTP connection with limits."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._config = cast(LimitedConfig, self.config)
        self._options = self._config.options
        self._deadline = ReadDeadline(self.loop, self._too_late)
        self._is_between = True
        """The last request is complete and no byte of the next one has arrived."""
        self._is_head = True
        self._size = 0
        """Bytes of the request that is being received."""
        self._refusal: FieldpostError | None = None
        self._answers: list[RequestResponseCycle] = []
        """Requests of this connection whose answers are not complete."""
        # An answer is worth waiting for also after the close.
        self._write_deadline = WriteDeadline(self._options.body_grace_s, self._options.body_grace_s)
        self.admitted: OpenConnection | None = None
        """Set before the TLS handshake; a plain connection is admitted when it is made."""

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(cast(Transport, transport))
        self.transport.set_write_buffer_limits(high=WRITE_BYTES)
        self._deadline.set(self._options.header_s)
        if self.admitted is not None:
            # The TLS handshake was a separate wait.
            self.admitted.wait()
            return
        try:
            self.admitted = self._config.admission.admit(self.client[0] if self.client else None, self.abort)
        except Unavailable as error:
            self._refuse(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.clear()
        if self.admitted is not None:
            self.admitted.release()
        self._end_answers()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        self._write_deadline.reset()
        super().resume_writing()

    @property
    def is_blocked(self) -> bool:
        """Whether the peer does not read."""
        return self.flow.write_paused

    def sweep(self, now: float) -> None:
        """Abort the connection if its peer reads too slowly or does not let it end."""
        if self._write_deadline.is_late(self.transport, now, is_paused=self.flow.write_paused):
            self._config.log_refusal("http.not_read", self.client, now)
            self.abort()

    def abort(self) -> None:
        """Close the connection without sending buffered data."""
        self._end_answers()
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._is_between:
            self._begin_head()
        self._size += len(data)
        self._deadline.arrived(len(data))
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._is_head and self._size > HEAD_BYTES_MAX:
            self._refuse(_head_too_large())
        elif self._size > REQUEST_BYTES_MAX:
            self.abort()

    def on_message_begin(self) -> None:
        if self._is_between:
            # A further request in the same piece of data.
            self._begin_head()
        super().on_message_begin()
        self.scope["state"][STATE_KEY] = self.admitted

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers after the body are ignored.
        if self._is_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_head = False
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > HEAD_BYTES_MAX:
            self._give_up(_head_too_large())
        if len(self.pipeline) >= PIPELINED_MAX:
            self._give_up(InvalidInput("http.pipelined", f"at most {PIPELINED_MAX} requests may be pipelined"))
        if sum(name == b"host" for name, _ in self.headers) != 1:
            self._give_up(InvalidInput("http.host", "a request must have exactly one Host header", field="Host"))
        self._deadline.set(self._options.body_grace_s, RATE_FLOOR)
        if (admitted := self.admitted) is not None:
            admitted.work()
            if admitted.is_reserved and not self._may_use_reserve():
                self._give_up(busy())
        super().on_headers_complete()
        if (cycle := self._cycle) is not None and cycle not in self._answers:
            self._answers = [*(one for one in self._answers if not one.response_complete), cycle]

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._is_between = True
        self._size = 0
        self._deadline.clear()
        if (cycle := self._cycle) is not None and cycle.response_complete:
            # The rest of a body that was answered early has arrived; the connection is idle from now on.
            self._deadline.set(self._options.header_s)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.cycle.response_complete:
            return
        if self.admitted is not None:
            self.admitted.wait()
        if self.cycle.more_body and not self.transport.is_closing():
            self._deadline.set(LINGER_S)

    def handle_websocket_upgrade(self) -> None:
        self._deadline.clear()
        admitted, self.admitted = self.admitted, None
        super().handle_websocket_upgrade()
        cast(Any, self.transport.get_protocol()).adopt(admitted)

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal or malformed())

    @property
    def _cycle(self) -> RequestResponseCycle | None:
        """The last request and its answer; None before the first request."""
        return cast(RequestResponseCycle | None, self.cycle)

    def _end_answers(self) -> None:
        """End all requests whose answers will not be read. The library ends only the last of those in the pipeline,
        and uvloop fails on a write after an abort."""
        self.pipeline.clear()
        for answer in self._answers:
            answer.disconnected = True
            answer.message_event.set()
        self._answers = []

    def _may_use_reserve(self) -> bool:
        """Whether the request uses the link with a site token, by its form, or asks for health.

        The link checks the token before it reads a body, so an invalid one holds the place only for a moment.
        """
        if not self.url.startswith(b"/link/"):
            return self.url == b"/healthz"
        return any(name == b"authorization" and SITE_TOKEN in value for name, value in self.headers)

    def _begin_head(self) -> None:
        self._is_between = False
        self._is_head = True
        self._size = 0
        self._deadline.set(self._options.header_s)

    def _give_up(self, refusal: FieldpostError) -> None:
        """Stop the parser from within; `send_400_response` then sends this refusal."""
        self._refusal = refusal
        raise refusal

    def _too_late(self) -> None:
        is_answered = (cycle := self._cycle) is not None and cycle.response_started and not self._is_head
        if self.flow.read_paused and not is_answered:
            # Central itself has paused reading.
            self._deadline.set(self._options.body_grace_s, RATE_FLOOR)
        elif is_answered or self._size == 0:
            self.abort()
        else:
            self._refuse(InvalidInput("http.too_slow", "the request did not arrive in time"))

    def _refuse(self, error: FieldpostError) -> None:
        self._deadline.clear()
        if self.admitted is not None:
            # It counts until its socket is closed and may be closed to make room.
            self.admitted.wait()
        self._config.log_refusal(error.code, self.client, self.loop.time())
        # The library sets it at the first request of the connection.
        path = getattr(self, "url", b"").partition(b"?")[0].decode("latin-1")
        refuse(self.transport, self._config.problem_at(path, error))


def refuse(transport: Transport, answer: Response) -> None:
    """Answer instead of the application, and close the connection."""
    head = [STATUS_LINE[answer.status_code], b"connection: close\r\n"]
    is_tls = transport.get_extra_info("sslcontext") is not None
    answer.headers.update(SECURITY_HEADERS | (TLS_HEADERS if is_tls else {}) | {"Cache-Control": "no-store"})
    head += [name + b": " + value + b"\r\n" for name, value in answer.raw_headers]
    transport.write(b"".join([*head, b"\r\n", bytes(answer.body)]))
    transport.close()


def malformed() -> InvalidInput:
    return InvalidInput("http.malformed", "the request is not valid HTTP")


def _head_too_large() -> InvalidInput:
    return InvalidInput("http.head_too_large", f"the request head has more than {HEAD_BYTES_MAX} bytes")
