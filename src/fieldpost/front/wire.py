"""What comes over the socket, bounded before anything is made of it.

uvicorn bounds neither the number of connections, nor the size of a request's head, nor the time that any of it may
take; a few slow senders could hold all of central. Its two protocols are completed here:

- a head has a size and a deadline; so has an idle connection;
- a body, or a frame of the link, has a deadline that moves on with its bytes, so that a slow line may take as long as
  it needs and a dripping one may not; the slowest rate we serve is the one that a sender gives up on by itself;
- what comes after the answer is thrown away for a moment, so that the answer is read, and then the line is cut;
- a connection too many is turned away.
"""

from asyncio import AbstractEventLoop, TimerHandle
from asyncio.transports import BaseTransport, Transport
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from fieldpost.core.errors import FieldpostError, InvalidInput, Unavailable
from fieldpost.front.http.problems import problem
from fieldpost.front.options import FrontOptions
from fieldpost.link.messages import FRAME_BYTES_MAX
from fieldpost.link.session import RATE_FLOOR

HEAD_BYTES_MAX = 16 * 1024
REQUEST_BYTES_MAX = 2 * FRAME_BYTES_MAX
"""More than any body we take and its framing; an honest sender has stopped long before."""
MESSAGE_BYTES_MAX = FRAME_BYTES_MAX + 64 * 1024
"""A message of the link with the framing of its parts."""
PARTS_MAX = 1000
"""So many frames may make up a message; our own senders need one."""
PIPELINED_MAX = 8
LINGER_S = 5.0
TELL_EVERY_S = 10.0
TOO_SLOW = 1008
TOO_BIG = 1009

log = structlog.get_logger()


class WireConfig(uvicorn.Config):
    """uvicorn's settings, with ours."""

    def __init__(self, app: Any, options: FrontOptions, **settings: Any) -> None:
        super().__init__(app, http=BoundedHttp, ws=BoundedWebSocket, ws_max_size=FRAME_BYTES_MAX, **settings)
        self.options = options
        self._told_at: dict[str, float] = {}
        self._untold: Counter[str] = Counter()

    def tell(self, code: str, client: tuple[str, int] | None, now: float) -> None:
        """Log a refusal; one line of each kind in a while, since a flood must not fill the log."""
        self._untold[code] += 1
        if now - self._told_at.get(code, -TELL_EVERY_S) >= TELL_EVERY_S:
            self._told_at[code] = now
            count = self._untold.pop(code)
            log.info("connection.refused", code=code, client=client[0] if client else None, count=count)


class ReadDeadline:
    """Calls `on_late` when the time is over; with a rate, every byte that arrives buys some more."""

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
        self._timer = self._loop.call_later(seconds, self._look)

    @property
    def is_set(self) -> bool:
        return self._timer is not None

    def arrived(self, size: int) -> None:
        self._until += size * self._byte_s

    def clear(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        left_s = self._until - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
        else:
            self._timer = None
            self._on_late()


class BoundedHttp(HttpToolsProtocol):
    """One connection that speaks HTTP, request after request."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._wire = cast(WireConfig, self.config)
        self._options = self._wire.options
        self._deadline = ReadDeadline(self.loop, self._too_late)
        self._is_between = True
        """Between requests: the last one is whole, and nothing of the next has come."""
        self._is_head = True
        self._size = 0
        """Bytes of the request that is coming in."""
        self._refusal: FieldpostError | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(cast(Transport, transport))
        self._deadline.set(self._options.header_s)
        if len(self.connections) > self._options.connections_max:
            self._refuse(Unavailable("http.busy", "central has as many connections as it takes"))

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
            # One more in the same piece of data.
            self._begin_head()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # A trailer, after the body, is nobody's header any more.
        if self._is_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_head = False
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > HEAD_BYTES_MAX:
            self._give_up(_head_too_large())
        if len(self.pipeline) >= PIPELINED_MAX:
            self._give_up(InvalidInput("http.pipelined", f"more than {PIPELINED_MAX} requests wait for their answers"))
        self._deadline.set(self._options.body_grace_s, RATE_FLOOR)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._is_between = True
        self._size = 0
        self._deadline.clear()
        if (cycle := self._cycle) is not None and cycle.response_complete:
            # The rest of a body that was not waited for has come; only now the connection is idle.
            self._deadline.set(self._options.header_s)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body and not self.transport.is_closing():
            self._deadline.set(LINGER_S)

    def handle_websocket_upgrade(self) -> None:
        self._deadline.clear()
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal or _malformed())

    @property
    def _cycle(self) -> RequestResponseCycle | None:
        """The last request and its answer; none before the first."""
        return cast(RequestResponseCycle | None, self.cycle)

    def _begin_head(self) -> None:
        self._is_between = False
        self._is_head = True
        self._size = 0
        self._deadline.set(self._options.header_s)

    def _give_up(self, refusal: FieldpostError) -> None:
        """From within the parser: it stops at the exception, and `send_400_response` says why."""
        self._refusal = refusal
        raise refusal

    def _too_late(self) -> None:
        is_answered = (cycle := self._cycle) is not None and cycle.response_started and not self._is_head
        if self.flow.read_paused and not is_answered:
            # It is we who do not read.
            self._deadline.set(self._options.body_grace_s, RATE_FLOOR)
        elif is_answered or self._size == 0:
            self.transport.abort()
        else:
            self._refuse(InvalidInput("http.too_slow", "the request did not arrive in time"))

    def _refuse(self, error: FieldpostError) -> None:
        self._deadline.clear()
        self._wire.tell(error.code, self.client, self.loop.time())
        _refuse(self.transport, error)


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """One connection of the link."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._wire = cast(WireConfig, self.config)
        self._grace_s = self._wire.options.body_grace_s
        self._deadline = ReadDeadline(self.loop, self._too_late)
        self._size = 0
        """Bytes of the message that is coming in."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self.pong_timer is not None and self.ping_timeout is not None:
            # In the middle of a long frame nobody can answer a ping; whatever arrives shows that the peer lives.
            self.pong_timer.cancel()
            self.pong_timer = self.loop.call_later(self.ping_timeout, self.keepalive_timeout)
        self._size += len(data)
        super().data_received(data)
        if not self.handshake_initiated:
            # The library gave up on a head that httptools could read, and would now say nothing for ever.
            self._wire.tell(_malformed().code, self.client, self.loop.time())
            _refuse(self.transport, _malformed())
        if self.transport.is_closing():
            return
        if not self.frames and not self.conn.reader.buffer:
            self._message_ended()
        elif not self._deadline.is_set:
            self._deadline.set(self._grace_s, RATE_FLOOR)
        self._deadline.arrived(len(data))
        if self._size > MESSAGE_BYTES_MAX:
            self._fail(TOO_BIG, f"at most {FRAME_BYTES_MAX} bytes")

    def handle_cont(self, event: Frame) -> None:
        if self.transport.is_closing():
            return
        if len(self.frames) >= PARTS_MAX:
            self._fail(TOO_BIG, f"at most {PARTS_MAX} parts")
        else:
            super().handle_cont(event)

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            # Turned away with an answer of HTTP: that is the end of the handshake too, and no mistake to be logged.
            self.handshake_complete = True

    def send_receive_event_to_app(self) -> None:
        self._message_ended()
        super().send_receive_event_to_app()

    def keepalive_timeout(self) -> None:
        if self.read_paused and not self.transport.is_closing():
            # It is we who do not read, as while a message waits for its turn at the store.
            self.pong_timer = self.loop.call_later(self.ping_timeout or 0, self.keepalive_timeout)
            return
        super().keepalive_timeout()
        # Nobody is there to take what is left, and a close in order would wait for him.
        self.transport.abort()

    def shutdown(self) -> None:
        if self.transport.is_closing() and not self.close_sent:
            # The site has said goodbye and hangs up; the library would say it a second time, and fail for that.
            self.stop_keepalive()
            return
        super().shutdown()

    def _message_ended(self) -> None:
        self._size = 0
        self._deadline.clear()

    def _too_late(self) -> None:
        if self.read_paused:
            self._deadline.set(self._grace_s, RATE_FLOOR)
        else:
            self._fail(TOO_SLOW, "the message did not arrive in time")

    def _fail(self, code: int, reason: str) -> None:
        self._wire.tell(f"websocket.{code}", self.client, self.loop.time())
        self._deadline.clear()
        if self.handshake_complete:
            self.conn.fail(code, reason)
            self.handle_parser_exception()
        else:
            self.transport.abort()


def _refuse(transport: Transport, error: FieldpostError) -> None:
    """Answer in place of the application, and hang up."""
    answer = problem(error)
    head = [STATUS_LINE[answer.status_code], b"connection: close\r\n"]
    head += [name + b": " + value + b"\r\n" for name, value in answer.raw_headers]
    transport.write(b"".join([*head, b"\r\n", bytes(answer.body)]))
    transport.close()


def _malformed() -> InvalidInput:
    return InvalidInput("http.malformed", "this is no HTTP request")


def _head_too_large() -> InvalidInput:
    return InvalidInput("http.head_too_large", f"the request's head has more than {HEAD_BYTES_MAX} bytes")
