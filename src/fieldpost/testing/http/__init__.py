"""An HTTP server that accepts every request by default and misbehaves on demand."""

from fieldpost.testing.http.receiver import ReceivedWebhook, WebhookReceiver
from fieldpost.testing.http.rules import HttpReaction, HttpRule, ReceivedRequest
from fieldpost.testing.http.server import HttpServer, HttpServerThread

__all__ = [
    "HttpReaction",
    "HttpRule",
    "HttpServer",
    "HttpServerThread",
    "ReceivedRequest",
    "ReceivedWebhook",
    "WebhookReceiver",
]
