"""Classification of SMTP replies. One table; the first matching row decides.

Before MAIL the server knows nothing about this message, so every failure is one of the channel and holds. From MAIL
on, a 4xx, a 421 or no reply is transient and a 5xx permanent, for the recipients concerned. Only after the final dot
does a missing reply mean that the delivery is uncertain. Exceptions come before the rule they modify.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import lru_cache

from fieldpost.core.text import truncate

REPLY_BYTES_MAX = 500
OUT_OF_SEQUENCE = 503


class SmtpPhase(StrEnum):
    """The last command sent; `connect` waits for the banner, `dot` for the reply to the whole message."""

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
    """The meaning of a reply."""

    ACCEPTED = "continue; at the dot: delivered"
    TRANSIENT = "failed this time"
    PERMANENT = "failed for good"
    HOLD = "failure of the channel, not of the message"
    SPLIT = "too many recipients in this transaction"
    UNCERTAIN = "it may have been delivered"


@dataclass(frozen=True, slots=True)
class SmtpReply:
    """A reply of the server; code 0 means that there was no valid reply, and the text describes what happened."""

    code: int
    text: str

    @property
    def is_answer(self) -> bool:
        return self.code != 0

    @property
    def enhanced(self) -> str:
        """The enhanced status code (RFC 2034) such as `5.1.1`; empty without one."""
        found = _ENHANCED.match(self.text)
        return found[1] if found else ""

    @property
    def line(self) -> str:
        """One printable line: `550 5.1.1 no such user`."""
        text = _NOT_PRINTED.sub(" ", self.text).strip()
        return truncate(f"{self.code} {text}".rstrip() if self.is_answer else text, REPLY_BYTES_MAX)


def is_over(phase: SmtpPhase, reply: SmtpReply) -> bool:
    """Whether the conversation has ended: the server closes after 421; an invalid reply means lost sync."""
    expected = (2, 3, 4, 5) if phase in (SmtpPhase.AUTH, SmtpPhase.DATA) else (2, 4, 5)
    return reply.code == 421 or reply.code // 100 not in expected


def classify(phase: SmtpPhase, reply: SmtpReply) -> ReplyVerdict:
    """Classify a reply received in this phase."""
    return _verdict(phase, f"{reply.code:03} {reply.enhanced}".rstrip())


@lru_cache(maxsize=1024)
def _verdict(phase: SmtpPhase, codes: str) -> ReplyVerdict:
    for phases, pattern, verdict in _TABLE:
        if phase in phases and pattern.fullmatch(codes):
            return verdict
    return _OTHERWISE[phase]


def rejects_sender(replies: Sequence[SmtpReply], sender: str) -> bool:
    """Whether the replies to all recipients of a transaction reject the channel's sender.

    A policy rejection (5.7.1) at RCPT usually concerns the recipient. It concerns the sender if it names the sender,
    and if all of at least two recipients got it.
    """
    named = re.compile(rf"(?<![\w.+-]){re.escape(sender)}(?![\w-]|\.\w)", re.IGNORECASE)
    return len(replies) > 1 and all(
        reply.code // 100 == 5 and reply.enhanced == "5.7.1" and named.search(reply.text) for reply in replies
    )


_ENHANCED = re.compile(r"([245]\.\d{1,3}\.\d{1,3})(?=\s|$)")
_NOT_PRINTED = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")

_BEFORE_MAIL = (SmtpPhase.CONNECT, SmtpPhase.EHLO, SmtpPhase.STARTTLS, SmtpPhase.AUTH)
_TRANSACTION = (SmtpPhase.MAIL, SmtpPhase.RCPT, SmtpPhase.DATA, SmtpPhase.DOT)

# Phases, a pattern for the code and the enhanced code (if any), and the verdict.
_ROWS: tuple[tuple[tuple[SmtpPhase, ...], str, ReplyVerdict], ...] = (
    ((SmtpPhase.CONNECT, SmtpPhase.STARTTLS), r"220.*", ReplyVerdict.ACCEPTED),
    ((SmtpPhase.EHLO,), r"250.*", ReplyVerdict.ACCEPTED),
    ((SmtpPhase.AUTH,), r"235.*", ReplyVerdict.ACCEPTED),
    (_BEFORE_MAIL, r".*", ReplyVerdict.HOLD),
    # "Authentication required", a possible reply to any command (RFC 4954), concerns our account.
    ((SmtpPhase.MAIL, SmtpPhase.RCPT, SmtpPhase.DATA), r"530.*|534.*|535.*|538.*", ReplyVerdict.HOLD),
    # At MAIL the server knows only the channel's sender, so a policy or sender rejection concerns the channel.
    ((SmtpPhase.MAIL,), r"5\d\d 5\.7\.\d+", ReplyVerdict.HOLD),
    # Many servers reject a sender only at RCPT; these two codes always concern the sender.
    ((SmtpPhase.MAIL, SmtpPhase.RCPT), r"5\d\d 5\.1\.[78]", ReplyVerdict.HOLD),
    # 452 means too many recipients (552 in RFC 821), unless the enhanced code states another reason; the enhanced code
    # x.5.3 always does.
    ((SmtpPhase.RCPT,), r"452|552|4\d\d 4\.5\.3|5\d\d 5\.5\.3", ReplyVerdict.SPLIT),
    ((SmtpPhase.MAIL, SmtpPhase.RCPT, SmtpPhase.DOT), r"2\d\d.*", ReplyVerdict.ACCEPTED),
    ((SmtpPhase.DATA,), r"354.*", ReplyVerdict.ACCEPTED),
    (_TRANSACTION, r"4\d\d.*", ReplyVerdict.TRANSIENT),
    (_TRANSACTION, r"5\d\d.*", ReplyVerdict.PERMANENT),
    ((SmtpPhase.QUIT,), r".*", ReplyVerdict.ACCEPTED),
)
_TABLE = tuple((frozenset(phases), re.compile(pattern), verdict) for phases, pattern, verdict in _ROWS)

# No reply, or an invalid one.
_OTHERWISE = dict.fromkeys(SmtpPhase, ReplyVerdict.TRANSIENT) | {SmtpPhase.DOT: ReplyVerdict.UNCERTAIN}
