"""What the server has seen: connections with their transcripts, mails, counts; and waits for it, without polling."""

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
    """One line of a conversation; secrets stand in it as they came."""

    speaker: Literal["client", "server"]
    text: str

    def __str__(self) -> str:
        return f"{'C' if self.speaker == 'client' else 'S'}: {self.text}"


@dataclass(eq=False)
class ConnectionRecord:
    """One connection: what was said, and a hand on it for what a server does unasked."""

    number: int
    peer: str
    wire: ServerWire = field(repr=False)
    transcript: deque[TranscriptLine] = field(repr=False)
    is_open: bool = True
    is_tls: bool = False
    tls_error: str | None = None
    user: str | None = None
    """Whom AUTH let in."""
    mail_count: int = 0

    @property
    def commands(self) -> list[str]:
        """What the client said, line by line; a message appears as its dot."""
        return [line.text for line in self.transcript if line.speaker == "client"]

    def say(self, code: int, text: str = "") -> None:
        """Say something unasked, as a server does that closes an idle connection."""
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


class Record:
    """Everything seen so far, bounded; the newest stays."""

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
        """Taken before a hook may wait, so that no two mails share one."""
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
        """Wake whoever waits for what is now so."""
        self._waiters.wake()

    async def until(self, is_so: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Return once it is so. Raises TimeoutError that tells what was seen."""
        await self._waiters.until(is_so, timeout_s, what, lambda: self)

    def __str__(self) -> str:
        verbs = ", ".join(f"{verb} {count}" for verb, count in self.seen.items()) or "nothing"
        last = f"\nlast connection:\n{self._connections[-1]}" if self._connections else ""
        return f"{self.mail_count} mails accepted; seen: {verbs}{last}"
