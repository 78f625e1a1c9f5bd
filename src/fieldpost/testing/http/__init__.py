"""An HTTP server that accepts every request by default and misbehaves on demand."""

from fieldpost.testing.http.rules import HttpReaction, HttpRule, ReceivedRequest
from fieldpost.testing.http.server import HttpServer
from fieldpost.testing.http.thread import HttpServerThread

__all__ = ["HttpReaction", "HttpRule", "HttpServer", "HttpServerThread", "ReceivedRequest"]
