"""The words of the server's script: the verb that arrives, the moment around it, and the act that answers it."""

import asyncio
from dataclasses import dataclass
from typing import Literal, get_args

from fieldpost.testing.mail.message import find_message_id
from fieldpost.testing.misbehaving import Ending, Waitable

SmtpVerb = Literal[
    "connect", "tls", "ehlo", "helo", "starttls", "auth", "mail", "rcpt", "data", "dot", "rset", "noop", "vrfy", "quit"
]
"""`connect` is answered by the banner, `dot` ends the message; a rule at `tls` acts before the handshake."""

VERBS: frozenset[str] = frozenset(get_args(SmtpVerb))


@dataclass(frozen=True, slots=True)
class MailEvent:
    """What has just come in, as rules see it."""

    verb: SmtpVerb
    connection: int
    transaction: int = 0
    """Which MAIL of this server, counted from 1, began the transaction."""
    line: str = ""
    sender: str | None = None
    recipients: tuple[str, ...] = ()
    """Those accepted so far; at RCPT without the one that is asked for."""
    address: str | None = None
    """The sender at MAIL, the recipient at RCPT."""
    raw: bytes = b""
    """The message, at `dot`."""

    @property
    def message_id(self) -> str | None:
        return find_message_id(self.raw)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Whom `address=` speaks of: the sender at MAIL, the recipient at RCPT, afterwards all accepted recipients."""
        return self.recipients if self.address is None else (self.address,)


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """A reply; each line of its text becomes a line of the reply."""

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
    """Lets a dripping answer out: `drop(3)` three bytes of it, `open()` all the rest."""

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
        """Return when the next byte may go."""
        while not self._is_open:
            if self._drops:
                self._drops -= 1
                return
            self._turned.clear()
            await self._turned.wait()


@dataclass(frozen=True, slots=True)
class MailReaction:
    """What is done with one command. As it stands here: what a good server does."""

    reply: ScriptedReply | None = None
    raw: bytes | None = None
    is_silent: bool = False
    injected: bytes = b""
    ending: Ending = Ending.STAY
    keeps_mail: bool = False
    event: Waitable | None = None
    delay_s: float = 0
    pace: Waitable | float | None = None
    """What each byte of the answer waits for: a tap, or so many seconds."""

    @property
    def has_answer(self) -> bool:
        """Whether it stands in for the server's own answer."""
        return self.reply is not None or self.raw is not None or self.is_silent

    def answer(self, own: ScriptedReply) -> bytes:
        if self.is_silent:
            return b""
        return (bytes(self.reply or own) if self.raw is None else self.raw) + self.injected

    def lets_through(self, own: ScriptedReply) -> bool:
        """Whether the command has its effect."""
        return not self.is_silent and self.raw is None and (self.reply or own).is_positive


BEHAVE = MailReaction()
