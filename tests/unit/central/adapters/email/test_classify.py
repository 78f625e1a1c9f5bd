"""The one table from SMTP reply to verdict, row by row."""

import pytest

from fieldpost.central.adapters.email.classify import (
    REPLY_BYTES_MAX,
    ReplyVerdict,
    SmtpPhase,
    SmtpReply,
    classify,
    is_over,
)

ACCEPTED, TRANSIENT, PERMANENT = ReplyVerdict.ACCEPTED, ReplyVerdict.TRANSIENT, ReplyVerdict.PERMANENT
HOLD, SPLIT, UNCERTAIN = ReplyVerdict.HOLD, ReplyVerdict.SPLIT, ReplyVerdict.UNCERTAIN

# What was heard; code 0 is silence (closed, reset, timed out, nonsense).
TABLE = [
    ("connect", 220, "mail.example ready", ACCEPTED),
    ("connect", 421, "4.3.2 too busy", HOLD),
    ("connect", 450, "come back", HOLD),
    ("connect", 554, "5.7.1 no service for you", HOLD),
    ("connect", 250, "out of step", HOLD),
    ("connect", 0, "connection refused", HOLD),
    ("ehlo", 250, "mail.example", ACCEPTED),
    ("ehlo", 421, "4.3.2 shutting down", HOLD),
    ("ehlo", 451, "4.3.0 later", HOLD),
    ("ehlo", 502, "5.5.1 unknown", HOLD),
    ("ehlo", 550, "5.7.1 bad name", HOLD),
    ("ehlo", 0, "closed", HOLD),
    ("starttls", 220, "ready", ACCEPTED),
    ("starttls", 250, "ok, but not 220", HOLD),
    ("starttls", 454, "4.7.0 not available", HOLD),
    ("starttls", 502, "5.5.1 unknown", HOLD),
    ("starttls", 0, "certificate verify failed", HOLD),
    ("auth", 235, "2.7.0 welcome", ACCEPTED),
    ("auth", 454, "4.7.0 temporary", HOLD),
    ("auth", 535, "5.7.8 wrong password", HOLD),
    ("auth", 0, "closed", HOLD),
    ("mail", 250, "2.1.0 ok", ACCEPTED),
    ("mail", 421, "4.3.2 shutting down", TRANSIENT),
    ("mail", 451, "4.3.0 later", TRANSIENT),
    ("mail", 452, "4.3.1 no space", TRANSIENT),
    ("mail", 530, "5.7.0 authentication required", HOLD),
    ("mail", 530, "log in first", HOLD),
    ("mail", 535, "5.7.8 who are you", HOLD),
    ("mail", 550, "5.7.1 sender not allowed", HOLD),
    ("mail", 550, "5.7.60 client may not send as this sender", HOLD),
    ("mail", 553, "5.7.1 not your address", HOLD),
    ("mail", 550, "5.1.8 sender's domain does not exist", HOLD),
    ("mail", 550, "no", PERMANENT),
    ("mail", 552, "5.3.4 too large", PERMANENT),
    ("mail", 554, "no", PERMANENT),
    ("mail", 0, "closed", TRANSIENT),
    ("mail", 354, "out of step", TRANSIENT),
    ("rcpt", 250, "2.1.5 ok", ACCEPTED),
    ("rcpt", 251, "will forward", ACCEPTED),
    ("rcpt", 252, "cannot verify, will try", ACCEPTED),
    ("rcpt", 421, "4.3.2 shutting down", TRANSIENT),
    ("rcpt", 450, "4.2.0 greylisted", TRANSIENT),
    ("rcpt", 451, "4.7.1 greylisted", TRANSIENT),
    ("rcpt", 452, "4.5.3 too many recipients", SPLIT),
    ("rcpt", 452, "too many recipients", SPLIT),
    ("rcpt", 452, "4.2.2 mailbox full", TRANSIENT),
    ("rcpt", 452, "4.3.1 no space", TRANSIENT),
    ("rcpt", 552, "5.5.3 too many recipients", SPLIT),
    ("rcpt", 550, "5.5.3 too many recipients", SPLIT),
    ("rcpt", 450, "4.5.3 too many recipients", SPLIT),
    ("rcpt", 552, "5.2.2 mailbox full", PERMANENT),
    ("rcpt", 530, "5.7.0 authentication required", HOLD),
    ("rcpt", 534, "5.7.9 mechanism too weak", HOLD),
    ("rcpt", 538, "5.7.11 encryption required", HOLD),
    ("rcpt", 550, "5.1.7 bad sender address", HOLD),
    ("rcpt", 553, "5.1.8 sender's domain does not exist", HOLD),
    ("rcpt", 450, "4.1.8 sender's domain not found", TRANSIENT),
    ("rcpt", 550, "5.1.1 no such user", PERMANENT),
    ("rcpt", 550, "5.7.1 relaying denied", PERMANENT),
    ("rcpt", 553, "5.1.3 bad address", PERMANENT),
    ("rcpt", 0, "closed", TRANSIENT),
    ("data", 354, "go on", ACCEPTED),
    ("data", 250, "out of step", TRANSIENT),
    ("data", 421, "4.3.2 shutting down", TRANSIENT),
    ("data", 451, "4.3.0 later", TRANSIENT),
    ("data", 554, "5.5.1 no valid recipients", PERMANENT),
    ("data", 0, "closed", TRANSIENT),
    ("dot", 250, "2.0.0 queued as 4711", ACCEPTED),
    ("dot", 421, "4.3.2 shutting down", TRANSIENT),
    ("dot", 451, "4.3.0 later", TRANSIENT),
    ("dot", 452, "4.5.3 too many", TRANSIENT),
    ("dot", 530, "5.7.0 odd", PERMANENT),
    ("dot", 552, "5.3.4 too large", PERMANENT),
    ("dot", 554, "5.7.1 looks like spam", PERMANENT),
    ("dot", 0, "closed", UNCERTAIN),
    ("dot", 354, "out of step", UNCERTAIN),
    ("quit", 221, "bye", ACCEPTED),
    ("quit", 500, "what", ACCEPTED),
    ("quit", 0, "closed", ACCEPTED),
]


@pytest.mark.parametrize(("phase", "code", "text", "verdict"), TABLE)
def test_reply_to_verdict(phase: str, code: int, text: str, verdict: ReplyVerdict) -> None:
    assert classify(SmtpPhase(phase), SmtpReply(code, text)) is verdict


@pytest.mark.parametrize("phase", ["mail", "rcpt", "data", "dot"])
@pytest.mark.parametrize("text", ["", "4.3.2 going down", "4.7.0 rate limited", "5.7.1 odd", "bye"])
def test_421_from_mail_on_is_never_permanent(phase: str, text: str) -> None:
    assert classify(SmtpPhase(phase), SmtpReply(421, text)) is TRANSIENT
    assert is_over(SmtpPhase(phase), SmtpReply(421, text))


@pytest.mark.parametrize("phase", [phase for phase in SmtpPhase if phase not in (SmtpPhase.DOT, SmtpPhase.QUIT)])
def test_reply_before_the_dot_is_never_uncertain(phase: SmtpPhase) -> None:
    codes = [0, *range(100, 700)]
    assert UNCERTAIN not in {classify(phase, SmtpReply(code, "")) for code in codes}


def test_only_a_2xx_after_the_dot_is_delivered() -> None:
    accepted = [code for code in (0, *range(100, 700)) if classify(SmtpPhase.DOT, SmtpReply(code, "")) is ACCEPTED]
    assert accepted == list(range(200, 300))


@pytest.mark.parametrize(
    ("phase", "code", "expected"),
    [
        *(("rcpt", 250, False), ("rcpt", 550, False), ("rcpt", 421, True), ("rcpt", 0, True), ("rcpt", 354, True)),
        *(("data", 354, False), ("dot", 354, True), ("dot", 999, True)),
    ],
)
def test_session_ends_after_421_silence_or_nonsense(phase: str, code: int, expected: bool) -> None:
    assert is_over(SmtpPhase(phase), SmtpReply(code, "")) is expected


@pytest.mark.parametrize(
    ("reply", "line"),
    [
        (SmtpReply(550, "5.1.1 no such user"), "550 5.1.1 no such user"),
        (SmtpReply(550, ""), "550"),
        (SmtpReply(0, "the server closed the connection"), "the server closed the connection"),
        (SmtpReply(550, "5.1.1 first\n5.1.1 second"), "550 5.1.1 first 5.1.1 second"),
        (SmtpReply(550, "\x1b[31mred\x00\r"), "550 [31mred"),
        (SmtpReply(550, "bytes \udcff\udcfe"), "550 bytes ??"),
    ],
)
def test_reply_is_stored_as_one_safe_line(reply: SmtpReply, line: str) -> None:
    assert reply.line == line


def test_long_reply_is_truncated() -> None:
    assert len(SmtpReply(550, "ä" * 20_000).line.encode()) <= REPLY_BYTES_MAX
