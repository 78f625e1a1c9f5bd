"""What adapter and app authors need: a contract for adapters, a manual clock, servers that misbehave on demand."""

from fieldpost.testing.clock import ManualClock
from fieldpost.testing.mail import MailServer, MailServerThread, ReceivedMail

__all__ = ["MailServer", "MailServerThread", "ManualClock", "ReceivedMail"]
