"""Types of the server's rules: the verb, the event around it, and the reaction to it."""

import asyncio
from dataclasses import dataclass
from typing import Literal, get_args

from fieldpost.testing.mail.message import find_message_id
from fieldpost.testing.misbehaving import Reaction, Waitable

SmtpVerb = Literal[
    "connect", "tls", "ehlo", "helo", "starttls", "auth", "mail", "rcpt", "data", "dot", "rset", "noop", "vrfy", "quit"
]
"""`connect` is answered by the banner, `dot` ends the message; a rule at `tls` acts before the handshake."""

VERBS: frozenset[str] = frozenset(get_args(SmtpVerb))


@dataclass(frozen=True, slots=True)
class MailEvent:
    """A received verb with its context, as seen by rules."""

    verb: SmtpVerb
    connection: int
    transaction: int = 0
    """The number of the transaction, counted from 1 per server."""
    line: str = ""
    sender: str | None = None
    recipients: tuple[str, ...] = ()
    """Recipients accepted so far; at RCPT without the current one."""
    address: str | None = None
    """The sender at MAIL, the recipient at RCPT."""
    raw: bytes = b""
    """The message, at `dot`."""

    @property
    def message_id(self) -> str | None:
        return find_message_id(self.raw)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses that `address=` matches: the sender at MAIL, the recipient at RCPT, then all recipients."""
        return self.recipients if self.address is None else (self.address,)


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """A reply; a text with several lines makes a multi-line reply."""

    code: int
    text: str = ""

    @property
    def is_positive(self) -> bool:
        return 200 <= self.code < 400

    def __bytes__(self) -> bytes:
        *first, last = self.text.split("\n")
        lines = [f"{self.code}-{line}\r\n" for line in first] + [f"{self.code} {last}\r\n"]
        return "".join(lines).encode("utf-8", "surrogateescape")


class Tap:
    """Controls a dripping reply: `drop(3)` releases three bytes, `open()` the rest."""

    def __init__(self) -> None:
        self._drops = 0
        self._is_open = False
        self._turned = asyncio.Event()

    def drop(self, count: int = 1) -> None:
        self._drops += count
        self._turned.set()

    def open(self) -> None:
        self._is_open = True
        self._turned.set()

    async def wait(self) -> None:
        """Wait until the next byte may be sent."""
        while not self._is_open:
            if self._drops:
                self._drops -= 1
                return
            self._turned.clear()
            await self._turned.wait()


@dataclass(frozen=True, slots=True)
class MailReaction(Reaction):
    """The handling of one command."""

    reply: ScriptedReply | None = None
    injected: bytes = b""
    keeps_mail: bool = False
    keeps_transaction: bool = False
    pace: Waitable | float | None = None
    """The wait before each byte of the reply: a tap, or seconds."""

    @property
    def has_answer(self) -> bool:
        """Whether it replaces the server's own reply."""
        return self.reply is not None or self.raw is not None or self.is_silent

    def answer(self, own: ScriptedReply) -> bytes:
        if self.is_silent:
            return b""
        return (bytes(self.reply or own) if self.raw is None else self.raw) + self.injected

    def lets_through(self, own: ScriptedReply) -> bool:
        """Whether the command takes effect."""
        return not self.is_silent and self.raw is None and (self.reply or own).is_positive


BEHAVE = MailReaction()
