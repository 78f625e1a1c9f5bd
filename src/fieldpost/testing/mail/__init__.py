"""A mail server that behaves well by default and misbehaves on demand; the demo's mail catcher is the same server."""

from fieldpost.testing.mail.message import ReceivedMail
from fieldpost.testing.mail.offer import Credentials, Limits
from fieldpost.testing.mail.record import Connection, Line
from fieldpost.testing.mail.rules import Rule
from fieldpost.testing.mail.script import Moment, Tap, Verb
from fieldpost.testing.mail.server import MailServer
from fieldpost.testing.mail.thread import MailServerThread
from fieldpost.testing.thread import Gate

__all__ = [
    "Connection",
    "Credentials",
    "Gate",
    "Limits",
    "Line",
    "MailServer",
    "MailServerThread",
    "Moment",
    "ReceivedMail",
    "Rule",
    "Tap",
    "Verb",
]
