"""An HTTP server that takes every request by default and misbehaves on demand."""

from fieldpost.testing.http.rules import Act, ReceivedRequest, Rule
from fieldpost.testing.http.server import HttpServer
from fieldpost.testing.http.thread import HttpServerThread

__all__ = ["Act", "HttpServer", "HttpServerThread", "ReceivedRequest", "Rule"]
