"""The server's record: connections with transcripts, mails and counts, with waiting for conditions."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fieldpost.testing.mail.message import ReceivedMail
from fieldpost.testing.mail.script import ScriptedReply
from fieldpost.testing.mail.wire import ServerWire
from fieldpost.testing.waiters import Waiters


@dataclass(frozen=True, slots=True)
class TranscriptLine:
    """One line of a conversation, including secrets in plain text."""

    speaker: Literal["client", "server"]
    text: str

    def __str__(self) -> str:
        return f"{'C' if self.speaker == 'client' else 'S'}: {self.text}"


@dataclass(eq=False)
class ConnectionRecord:
    """One connection with its transcript, and methods for unsolicited actions of the server."""

    number: int
    peer: str
    wire: ServerWire = field(repr=False)
    transcript: deque[TranscriptLine] = field(repr=False)
    is_open: bool = True
    is_tls: bool = False
    tls_error: str | None = None
    user: str | None = None
    """The authenticated user."""
    mail_count: int = 0

    @property
    def commands(self) -> list[str]:
        """The lines sent by the client; a message appears as its dot."""
        return [line.text for line in self.transcript if line.speaker == "client"]

    def say(self, code: int, text: str = "") -> None:
        """Send an unsolicited reply, like a server that closes an idle connection."""
        reply = bytes(ScriptedReply(code, text))
        self.note("server", reply.decode("utf-8", "replace").rstrip())
        self.wire.say(reply)
        self.wire.flush()

    def close(self) -> None:
        self.wire.close()

    def reset(self) -> None:
        self.wire.reset()

    def note(self, speaker: Literal["client", "server"], text: str) -> None:
        self.transcript.append(TranscriptLine(speaker, text))

    def __str__(self) -> str:
        return "\n".join(map(str, self.transcript))


class MailRecord:
    """The newest mails and connections, and counters."""

    def __init__(self, mails_max: int, connections_max: int) -> None:
        self.mails_max = mails_max
        self.mail_count = 0
        self.connection_count = 0
        self.transaction_count = 0
        self.seen: Counter[str] = Counter()
        self._mail_number = 0
        self._mails: deque[ReceivedMail] = deque(maxlen=mails_max)
        self._connections: deque[ConnectionRecord] = deque(maxlen=connections_max)
        self._waiters = Waiters()

    @property
    def mails(self) -> Sequence[ReceivedMail]:
        return list(self._mails)

    @property
    def connections(self) -> Sequence[ConnectionRecord]:
        return list(self._connections)

    def add_connection(self, connection: ConnectionRecord) -> None:
        self._connections.append(connection)
        self.changed()

    def next_mail_number(self) -> int:
        """Reserve a mail number before a hook waits, so that numbers are unique."""
        self._mail_number += 1
        return self._mail_number

    def add_mail(self, mail: ReceivedMail) -> None:
        self.mail_count += 1
        self._mails.append(mail)
        self.changed()

    def add_verb(self, verb: str) -> None:
        self.seen[verb] += 1
        self.changed()

    def changed(self) -> None:
        """Wake the waiters whose condition is true now."""
        self._waiters.wake()

    async def until(self, is_so: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait until `is_so` returns True. Raises TimeoutError with a summary of the record."""
        await self._waiters.until(is_so, timeout_s, what, lambda: self)

    def __str__(self) -> str:
        verbs = ", ".join(f"{verb} {count}" for verb, count in self.seen.items()) or "nothing"
        last = f"\nlast connection:\n{self._connections[-1]}" if self._connections else ""
        return f"{self.mail_count} mails accepted; seen: {verbs}{last}"
