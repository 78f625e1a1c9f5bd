"""Limits on WebSocket connections of the link: the size, the number of frames and the duration of a message.

The theory is in `http_limits.py`.
"""

from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from fieldpost.front.http_limits import LimitedConfig, ReadDeadline, malformed, refuse
from fieldpost.link.messages import FRAME_BYTES_MAX
from fieldpost.link.session import RATE_FLOOR

MESSAGE_BYTES_MAX = FRAME_BYTES_MAX + 64 * 1024
"""A link message with the framing of its frames."""
FRAMES_MAX = 1000
"""How many frames a message may have; our own senders use one."""
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

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.clear()
        super().connection_lost(exc)

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
            refuse(self.transport, malformed())
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
        if len(self.frames) >= FRAMES_MAX:
            self._fail(TOO_BIG, f"at most {FRAMES_MAX} frames")
        else:
            super().handle_cont(event)

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            # Refused with an HTTP answer: that ends the handshake too, and is not an error to log.
            self.handshake_complete = True

    def send_receive_event_to_app(self) -> None:
        self._message_ended()
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
