"""The phases of an HTTP request."""

from enum import StrEnum


class HttpPhase(StrEnum):
    """The phases of a request until the status line arrives."""

    QUEUE = "queue"
    """Waiting for a connection, because of our limits."""
    PROXY = "proxy"
    """Reaching the proxy, and its consent to a tunnel."""
    RESOLVE = "resolve"
    CONNECT = "connect"
    TLS = "tls"
    SEND = "send"
    ANSWER = "answer"
    """The whole request was written."""
