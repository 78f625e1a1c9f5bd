"""The progress of an HTTP request through its phases, reported by aiohttp's trace hooks."""

import socket
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from types import SimpleNamespace

import aiohttp

from fieldpost.outbound.ranges import Address


class HttpPhase(StrEnum):
    """The phases of a request until the status line arrives."""

    QUEUE = "queue"
    """Waiting for a connection, because of our limits."""
    RESOLVE = "resolve"
    CONNECT = "connect"
    TLS = "tls"
    SEND = "send"
    ANSWER = "answer"
    """The whole request was written."""


@dataclass(slots=True)
class RequestProgress:
    """How far a request has come."""

    has_body: bool
    is_tls: bool
    phase: HttpPhase = HttpPhase.QUEUE
    is_sent: bool = False
    is_reused: bool = False
    permitted: set[Address] = field(default_factory=set)
    """The addresses checked for this request."""
    sockets: list[socket.socket] = field(default_factory=list)

    def note_handshake(self) -> None:
        """Set the phase to TLS if a socket is connected but the connection is not ready."""
        if self.phase is HttpPhase.CONNECT and self.is_tls and any(map(_is_connected, self.sockets)):
            self.phase = HttpPhase.TLS

    def phase_of(self, error: BaseException) -> HttpPhase:
        """The phase in which this error of aiohttp happened."""
        if self.phase is HttpPhase.CONNECT and self.is_tls:
            # A refused connection is ConnectionRefusedError; the other two come from the handshake.
            cause = getattr(error, "os_error", error)
            is_reset = isinstance(cause, ConnectionResetError | ConnectionAbortedError)
            if is_reset or isinstance(error, aiohttp.ClientSSLError):
                return HttpPhase.TLS
        return self.phase


current_progress: ContextVar[RequestProgress] = ContextVar("progress")
"""Of the current request; its child tasks see the same object."""


def trace_config() -> aiohttp.TraceConfig:
    """Hooks that record the progress passed as `trace_request_ctx`."""
    trace = aiohttp.TraceConfig()
    trace.on_connection_create_start.append(_note_connect)
    trace.on_connection_create_end.append(_note_connected)
    trace.on_connection_reuseconn.append(_note_reuse)
    trace.on_request_headers_sent.append(_note_head)
    trace.on_request_chunk_sent.append(_note_body)
    return trace


def _is_connected(made: socket.socket) -> bool:
    try:
        made.getpeername()
    except OSError:
        return False
    return True


async def _note_connect(_session: object, context: SimpleNamespace, _parameters: object) -> None:
    context.trace_request_ctx.phase = HttpPhase.CONNECT


async def _note_connected(_session: object, context: SimpleNamespace, _parameters: object) -> None:
    context.trace_request_ctx.phase = HttpPhase.SEND
    # The transport owns the socket now.
    context.trace_request_ctx.sockets.clear()


async def _note_reuse(_session: object, context: SimpleNamespace, _parameters: object) -> None:
    context.trace_request_ctx.phase = HttpPhase.SEND
    context.trace_request_ctx.is_reused = True


async def _note_head(_session: object, context: SimpleNamespace, _parameters: object) -> None:
    if not context.trace_request_ctx.has_body:
        await _note_body(_session, context, _parameters)


async def _note_body(_session: object, context: SimpleNamespace, _parameters: object) -> None:
    # A body is one bytes object, so the first chunk is the whole body.
    context.trace_request_ctx.phase = HttpPhase.ANSWER
    context.trace_request_ctx.is_sent = True
