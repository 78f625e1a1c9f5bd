"""Test tools for authors of adapters and applications: adapter contract, manual clock, misbehaving servers."""

from fieldpost.testing.clock import ManualClock
from fieldpost.testing.contract import AdapterContract
from fieldpost.testing.http import HttpServer, HttpServerThread, ReceivedRequest, ReceivedWebhook, WebhookReceiver
from fieldpost.testing.mail import MailServer, MailServerThread, ReceivedMail
from fieldpost.testing.outbox import AddedEvent, outbox_events, outbox_events_async
from fieldpost.testing.world import Behaviour, World

__all__ = [
    "AdapterContract",
    "AddedEvent",
    "Behaviour",
    "HttpServer",
    "HttpServerThread",
    "MailServer",
    "MailServerThread",
    "ManualClock",
    "ReceivedMail",
    "ReceivedRequest",
    "ReceivedWebhook",
    "WebhookReceiver",
    "World",
    "outbox_events",
    "outbox_events_async",
]
