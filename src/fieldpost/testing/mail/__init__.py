"""A mail server that behaves correctly by default and misbehaves on demand; also the demo's mail catcher."""

from fieldpost.testing.mail.message import ReceivedMail
from fieldpost.testing.mail.offer import Credentials, Limits
from fieldpost.testing.mail.record import ConnectionRecord, TranscriptLine
from fieldpost.testing.mail.rules import MailRule
from fieldpost.testing.mail.script import MailEvent, SmtpVerb, Tap
from fieldpost.testing.mail.server import MailServer, MailServerThread
from fieldpost.testing.thread import Gate

__all__ = [
    "ConnectionRecord",
    "Credentials",
    "Gate",
    "Limits",
    "MailEvent",
    "MailRule",
    "MailServer",
    "MailServerThread",
    "ReceivedMail",
    "SmtpVerb",
    "Tap",
    "TranscriptLine",
]
