"""Limits on HTTP connections, enforced before a request is processed.

uvicorn limits neither the number of connections, nor the size of a request head, nor the time that a request may take,
so a few slow senders could block central. `BoundedHttp` adds these limits to uvicorn's protocol, and
`websocket_limits.py` adds them for the link:

- a request head has a maximum size and a deadline; an idle connection has a deadline;
- the deadline of a body or frame moves with every byte that arrives, so a slow line may take as long as it needs but a
  dripping one is cut; the slowest accepted rate is the one at which a sender itself gives up;
- after an early answer, central discards further bytes for a few seconds, so that the client reads the answer, and
  then closes the connection;
- connections beyond the maximum get 503.
"""

from asyncio import AbstractEventLoop, TimerHandle
from asyncio.transports import BaseTransport, Transport
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from fieldpost.core.errors import FieldpostError, InvalidInput, Unavailable
from fieldpost.front.http.problems import problem
from fieldpost.front.options import FrontOptions
from fieldpost.link.messages import FRAME_BYTES_MAX
from fieldpost.link.session import RATE_FLOOR

HEAD_BYTES_MAX = 16 * 1024
REQUEST_BYTES_MAX = 2 * FRAME_BYTES_MAX
"""More than any accepted body with its framing; a client that sends more ignores the answer."""
PIPELINED_MAX = 8
LINGER_S = 5.0
LOG_EVERY_S = 10.0

log = structlog.get_logger()


class LimitedConfig(uvicorn.Config):
    """uvicorn's configuration with the options of the front."""

    def __init__(self, app: Any, options: FrontOptions, **settings: Any) -> None:
        super().__init__(app, **settings)
        self.options = options
        self._logged_at: dict[str, float] = {}
        self._unlogged: Counter[str] = Counter()

    def log_refusal(self, code: str, client: tuple[str, int] | None, now: float) -> None:
        """Log refused connections: at most one line per code in 10 s, so that a flood cannot fill the log."""
        self._unlogged[code] += 1
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

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(cast(Transport, transport))
        self._deadline.set(self._options.header_s)
        if len(self.connections) > self._options.connections_max:
            self._refuse(Unavailable("http.busy", "central has reached its maximum number of connections"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.clear()
        super().connection_lost(exc)

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
            self.transport.abort()

    def on_message_begin(self) -> None:
        if self._is_between:
            # A further request in the same piece of data.
            self._begin_head()
        super().on_message_begin()

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
        self._deadline.set(self._options.body_grace_s, RATE_FLOOR)
        super().on_headers_complete()

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
        if self.cycle.response_complete and self.cycle.more_body and not self.transport.is_closing():
            self._deadline.set(LINGER_S)

    def handle_websocket_upgrade(self) -> None:
        self._deadline.clear()
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal or malformed())

    @property
    def _cycle(self) -> RequestResponseCycle | None:
        """The last request and its answer; None before the first request."""
        return cast(RequestResponseCycle | None, self.cycle)

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
            self.transport.abort()
        else:
            self._refuse(InvalidInput("http.too_slow", "the request did not arrive in time"))

    def _refuse(self, error: FieldpostError) -> None:
        self._deadline.clear()
        self._config.log_refusal(error.code, self.client, self.loop.time())
        refuse(self.transport, error)


def refuse(transport: Transport, error: FieldpostError) -> None:
    """Answer instead of the application, and close the connection."""
    answer = problem(error)
    head = [STATUS_LINE[answer.status_code], b"connection: close\r\n"]
    head += [name + b": " + value + b"\r\n" for name, value in answer.raw_headers]
    transport.write(b"".join([*head, b"\r\n", bytes(answer.body)]))
    transport.close()


def malformed() -> InvalidInput:
    return InvalidInput("http.malformed", "the request is not valid HTTP")


def _head_too_large() -> InvalidInput:
    return InvalidInput("http.head_too_large", f"the request head has more than {HEAD_BYTES_MAX} bytes")
