"""Fake providers of chat, push and text messages on loopback: they enforce the real limits and misbehave on demand."""

from fieldpost.testing.providers.kannel import FakeKannel
from fieldpost.testing.providers.ntfy import FakeNtfy
from fieldpost.testing.providers.pagerduty import FakePagerDuty
from fieldpost.testing.providers.server import ProviderCopy, ProviderServer, RequestLimit
from fieldpost.testing.providers.slack import FakeSlack
from fieldpost.testing.providers.sms_router import FakeSmsRouter
from fieldpost.testing.providers.teams import FakeTeams
from fieldpost.testing.providers.telegram import FakeTelegram
from fieldpost.testing.providers.twilio import FakeTwilio

__all__ = [
    "FakeKannel",
    "FakeNtfy",
    "FakePagerDuty",
    "FakeSlack",
    "FakeSmsRouter",
    "FakeTeams",
    "FakeTelegram",
    "FakeTwilio",
    "ProviderCopy",
    "ProviderServer",
    "RequestLimit",
]
