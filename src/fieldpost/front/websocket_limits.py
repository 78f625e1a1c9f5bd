"""Limits on WebSocket connections of the link: the size, the number of frames and the duration of a message.

The theory is in `http_limits.py`.
"""

import socket
from typing import Any, cast

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from fieldpost.front.admission import STATE_KEY, OpenConnection
from fieldpost.front.http.problems import problem
from fieldpost.front.http_limits import LINGER_S, LimitedConfig, ReadDeadline, WriteDeadline, malformed, refuse
from fieldpost.link.messages import FRAME_BYTES_MAX
from fieldpost.link.session import RATE_FLOOR

MESSAGE_BYTES_MAX = FRAME_BYTES_MAX + 64 * 1024
"""A link message with the framing of its frames."""
FRAMES_MAX = 1000
"""How many frames a message may have; our own senders use one."""
CONTROL_FRAMES_MAX = 100
CONTROL_WINDOW_S = 10.0
"""At most this many pings and pongs in this time; a site sends one in 10 s."""
QUEUE_MAX = 64
"""How many messages of one connection may wait to be processed; a site sends four at most without an answer."""
PEER_GONE = frozenset({7, 8, 9, 10, 11})
"""States of a TCP connection (CLOSE to CLOSING, as Linux numbers them) whose peer sends nothing more."""
TOO_SLOW = 1008
TOO_BIG = 1009


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """One WebSocket connection with limits."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._config = cast(LimitedConfig, self.config)
        self._grace_s = self._config.options.body_grace_s
        self._deadline = ReadDeadline(self.loop, self._too_late)
        self._size = 0
        """Bytes of the message that is being received."""
        self._write_deadline = WriteDeadline(self._grace_s, LINGER_S)
        self._admitted: OpenConnection | None = None
        self._control_frames = 0
        self._control_until = 0.0

    def adopt(self, admitted: OpenConnection | None) -> None:
        """Take over the admission from the HTTP connection that was upgraded."""
        self._admitted = admitted
        if self.handshake_initiated and hasattr(self, "scope"):
            self.scope["state"][STATE_KEY] = admitted

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.clear()
        if self._admitted is not None:
            self._admitted.release()
        self._drop_messages()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._pause_reading()

    def resume_writing(self) -> None:
        self._write_deadline.reset()
        super().resume_writing()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            self.transport.resume_reading()

    @property
    def is_blocked(self) -> bool:
        """Whether the peer does not read."""
        return not self.writable.is_set()

    def sweep(self, now: float) -> None:
        """Abort the connection if its peer reads too slowly, does not let it end, or has left."""
        if self.read_paused and not self.transport.is_closing() and self._is_peer_gone():
            # While central does not read, it would learn that only after all messages on the way were processed.
            self.abort()
            return
        if self._write_deadline.is_late(self.transport, now, is_paused=self.is_blocked):
            self._config.log_refusal("websocket.not_read", self.client, now)
            self.abort()

    def abort(self) -> None:
        """Close the connection without sending buffered data."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self.pong_timer is not None and self.ping_timeout is not None:
            # A peer cannot answer a ping in the middle of a long frame; any byte shows that it is alive.
            self.pong_timer.cancel()
            self.pong_timer = self.loop.call_later(self.ping_timeout, self.keepalive_timeout)
        self._size += len(data)
        super().data_received(data)
        if not self.handshake_initiated:
            # The library rejected a head that httptools accepted, and would never answer.
            self._config.log_refusal(malformed().code, self.client, self.loop.time())
            refuse(self.transport, problem(malformed()))
        if self.transport.is_closing():
            return
        if self.is_blocked:
            # Otherwise answers to pings would pile up.
            self._pause_reading()
        if not self.frames and not self.conn.reader.buffer:
            self._message_ended()
        elif not self._deadline.is_set:
            self._deadline.set(self._grace_s, RATE_FLOOR)
        self._deadline.arrived(len(data))
        if self._size > MESSAGE_BYTES_MAX:
            self._fail(TOO_BIG, f"at most {FRAME_BYTES_MAX} bytes")

    def handle_parser_exception(self) -> None:
        if self.conn.close_sent is None:
            # Bytes after the head, before central accepted the connection: there is no frame yet to answer with.
            self._config.log_refusal(malformed().code, self.client, self.loop.time())
            self.abort()
            return
        super().handle_parser_exception()

    def handle_cont(self, event: Frame) -> None:
        if self.transport.is_closing():
            return
        if len(self.frames) >= FRAMES_MAX:
            self._fail(TOO_BIG, f"at most {FRAMES_MAX} frames")
        else:
            super().handle_cont(event)

    async def send(self, message: Any) -> None:
        if not self.handshake_complete and self.transport.is_closing():
            # Ended before it was accepted, which the library would report as a mistake of the application.
            raise ClientDisconnected
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            # Refused with an HTTP answer: that ends the handshake too, and is not an error to log.
            self.handshake_complete = True

    def _drop_messages(self) -> None:
        """Forget waiting messages: their answers could not be sent, and the sender repeats them."""
        waiting = [self.queue.get_nowait() for _ in range(self.queue.qsize())]
        for event in waiting:
            if event["type"] != "websocket.receive":
                self.queue.put_nowait(event)

    def _is_peer_gone(self) -> bool:
        found = self.transport.get_extra_info("socket")
        option = getattr(socket, "TCP_INFO", None)
        if found is None or option is None or found.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        return found.getsockopt(socket.IPPROTO_TCP, option, 1)[0] in PEER_GONE

    def send_receive_event_to_app(self) -> None:
        self._message_ended()
        if self.queue.qsize() >= QUEUE_MAX:
            if not self.transport.is_closing():
                self._fail(TOO_SLOW, f"at most {QUEUE_MAX} messages at once")
            return
        super().send_receive_event_to_app()

    def keepalive_timeout(self) -> None:
        if self.read_paused and not self.transport.is_closing():
            # Central itself has paused reading, for example while a message waits for the store.
            self.pong_timer = self.loop.call_later(self.ping_timeout or 0, self.keepalive_timeout)
            return
        super().keepalive_timeout()
        # The peer is gone; an orderly close would wait for its answer.
        self.transport.abort()

    def shutdown(self) -> None:
        if self.transport.is_closing() and not self.close_sent:
            # The site has already closed; the library would send a second close frame and fail.
            self.stop_keepalive()
            return
        super().shutdown()

    def handle_ping(self) -> None:
        if self._is_control_frame_allowed():
            super().handle_ping()

    def handle_pong(self, event: Frame) -> None:
        if self._is_control_frame_allowed():
            super().handle_pong(event)

    def _is_control_frame_allowed(self) -> bool:
        if self.transport.is_closing():
            return False
        now = self.loop.time()
        if now >= self._control_until:
            self._control_until, self._control_frames = now + CONTROL_WINDOW_S, 0
        self._control_frames += 1
        if self._control_frames <= CONTROL_FRAMES_MAX:
            return True
        self._fail(TOO_SLOW, f"at most {CONTROL_FRAMES_MAX} control frames in {CONTROL_WINDOW_S:g} s")
        return False

    def _pause_reading(self) -> None:
        if not self.read_paused and not self.transport.is_closing():
            self.read_paused = True
            self.transport.pause_reading()

    def _message_ended(self) -> None:
        self._size = 0
        self._deadline.clear()

    def _too_late(self) -> None:
        if self.read_paused:
            self._deadline.set(self._grace_s, RATE_FLOOR)
        else:
            self._fail(TOO_SLOW, "the message did not arrive in time")

    def _fail(self, code: int, reason: str) -> None:
        self._config.log_refusal(f"websocket.{code}", self.client, self.loop.time())
        self._deadline.clear()
        if self.handshake_complete:
            self.conn.fail(code, reason)
            self.handle_parser_exception()
        else:
            self.transport.abort()
