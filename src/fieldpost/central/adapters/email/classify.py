"""What an SMTP reply means for the recipients it concerns. One table; the first row that fits decides.

The idea behind the rows: until MAIL nothing has been said about this message, so whatever goes wrong is trouble of the
channel and holds. From MAIL on a 4xx, a 421 or silence means *later* and a 5xx *never*, for the recipients whom the
reply concerns. Only after the final dot does silence mean that nobody knows. The exceptions stand before their rule.
"""

import re
from dataclasses import dataclass
from enum import Enum, StrEnum

from fieldpost.core.text import truncate

REPLY_BYTES_MAX = 500


class SmtpPhase(StrEnum):
    """Which command was last sent; `connect` waits for the banner, `dot` for the answer to the whole message."""

    CONNECT = "connect"
    EHLO = "ehlo"
    STARTTLS = "starttls"
    AUTH = "auth"
    MAIL = "mail"
    RCPT = "rcpt"
    DATA = "data"
    DOT = "dot"
    QUIT = "quit"


class ReplyVerdict(Enum):
    """What a reply comes to."""

    ACCEPTED = "go on; at the dot: delivered"
    TRANSIENT = "not this time"
    PERMANENT = "never"
    HOLD = "trouble of the channel, not of the message"
    SPLIT = "no more recipients in this transaction"
    UNCERTAIN = "it may have been taken"


@dataclass(frozen=True, slots=True)
class SmtpReply:
    """What the server said; with code 0 it said nothing that is a reply, and the text tells what happened instead."""

    code: int
    text: str

    @property
    def is_answer(self) -> bool:
        return self.code != 0

    @property
    def enhanced(self) -> str:
        """The enhanced status code (RFC 2034), as `5.1.1`; empty without one."""
        found = _ENHANCED.match(self.text)
        return found[1] if found else ""

    @property
    def line(self) -> str:
        """As one line that may be stored and shown: `550 5.1.1 no such user`."""
        text = _NOT_PRINTED.sub(" ", self.text).strip()
        return truncate(f"{self.code} {text}".rstrip() if self.is_answer else text, REPLY_BYTES_MAX)


def is_over(phase: SmtpPhase, reply: SmtpReply) -> bool:
    """Whether nothing more can be said: after 421 the server closes, after silence or nonsense we are out of step."""
    expected = (2, 3, 4, 5) if phase in (SmtpPhase.AUTH, SmtpPhase.DATA) else (2, 4, 5)
    return reply.code == 421 or reply.code // 100 not in expected


def classify(phase: SmtpPhase, reply: SmtpReply) -> ReplyVerdict:
    """What this reply, heard in this phase, means for those it concerns."""
    spoken = f"{reply.code:03} {reply.enhanced}".rstrip()
    for phases, said, verdict in _TABLE:
        if phase in phases and said.fullmatch(spoken):
            return verdict
    return _OTHERWISE[phase]


_ENHANCED = re.compile(r"([245]\.\d{1,3}\.\d{1,3})(?=\s|$)")
_NOT_PRINTED = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")

_BEFORE_MAIL = (SmtpPhase.CONNECT, SmtpPhase.EHLO, SmtpPhase.STARTTLS, SmtpPhase.AUTH)
_TRANSACTION = (SmtpPhase.MAIL, SmtpPhase.RCPT, SmtpPhase.DATA, SmtpPhase.DOT)

# Phases, what the server said (code, then enhanced code where it gave one), and what that means.
_ROWS: tuple[tuple[tuple[SmtpPhase, ...], str, ReplyVerdict], ...] = (
    ((SmtpPhase.CONNECT, SmtpPhase.STARTTLS), r"220.*", ReplyVerdict.ACCEPTED),
    ((SmtpPhase.EHLO,), r"250.*", ReplyVerdict.ACCEPTED),
    ((SmtpPhase.AUTH,), r"235.*", ReplyVerdict.ACCEPTED),
    (_BEFORE_MAIL, r".*", ReplyVerdict.HOLD),
    # "Authentication required", which a server may say to any command (RFC 4954), speaks of our account.
    ((SmtpPhase.MAIL, SmtpPhase.RCPT, SmtpPhase.DATA), r"530.*|534.*|535.*|538.*", ReplyVerdict.HOLD),
    # At MAIL the server knows only the channel's sender, so a matter of policy, or a sender it dislikes, is about that.
    ((SmtpPhase.MAIL,), r"5\d\d (5\.7\.\d+|5\.1\.[78])", ReplyVerdict.HOLD),
    # 452 is the code for too many recipients, 552 the one that RFC 821 had; each has other meanings when it says so.
    ((SmtpPhase.RCPT,), r"452( 4\.5\.3)?|552( 5\.5\.3)?", ReplyVerdict.SPLIT),
    ((SmtpPhase.MAIL, SmtpPhase.RCPT, SmtpPhase.DOT), r"2\d\d.*", ReplyVerdict.ACCEPTED),
    ((SmtpPhase.DATA,), r"354.*", ReplyVerdict.ACCEPTED),
    (_TRANSACTION, r"4\d\d.*", ReplyVerdict.TRANSIENT),
    (_TRANSACTION, r"5\d\d.*", ReplyVerdict.PERMANENT),
    ((SmtpPhase.QUIT,), r".*", ReplyVerdict.ACCEPTED),
)
_TABLE = tuple((frozenset(phases), re.compile(said), verdict) for phases, said, verdict in _ROWS)

# Silence, or an answer that is none.
_OTHERWISE = dict.fromkeys(SmtpPhase, ReplyVerdict.TRANSIENT) | {SmtpPhase.DOT: ReplyVerdict.UNCERTAIN}
