"""Test tools for authors of adapters and applications: adapter contract, manual clock, misbehaving servers."""

from fieldpost.testing.clock import ManualClock
from fieldpost.testing.contract import AdapterContract
from fieldpost.testing.http import HttpServer, HttpServerThread, ReceivedRequest, WebhookReceiver
from fieldpost.testing.mail import MailServer, MailServerThread, ReceivedMail
from fieldpost.testing.world import Behaviour, World

__all__ = [
    "AdapterContract",
    "Behaviour",
    "HttpServer",
    "HttpServerThread",
    "MailServer",
    "MailServerThread",
    "ManualClock",
    "ReceivedMail",
    "ReceivedRequest",
    "WebhookReceiver",
    "World",
]
