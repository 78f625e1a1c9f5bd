"""Composes a notification as a plain-text mail, as bytes ready for DATA.

The bytes are assembled by hand, since the library's message objects cost many times more than sending does. For any
text three invariants hold: lines end in CRLF without a lone CR or LF; no text can end a header or start another; no
line is longer than 998 bytes. Text that would break one of them is encoded in base64.

Recipients are not named (BCC; only the envelope has them). Message-ID and Date depend only on the notification and the
installation, so that a duplicate can be recognised even if the channel has another sender by then.
"""

import re
from base64 import b64encode
from datetime import UTC, datetime

LINE_BYTES_MAX = 998

_HEADER_WIDTH = 76
_WORD_BYTES = 39
"""Bytes of text per encoded word: with `Subject: ` before it, the line fits the 76 characters of RFC 2047."""

_PLAIN_SUBJECT = re.compile(r"[!-~]+(?: +[!-~]+)*")


def compose(
    *, notification_id: str, message_id_domain: str, from_address: str, subject: str, body: str, dated: datetime
) -> bytes:
    """The whole message, ending in CRLF, without dot-stuffing."""
    encoding, content = _content(body)
    head = (
        f"From: {from_address}\r\n"
        "To: undisclosed-recipients:;\r\n"
        f"Subject:{_subject(subject)}\r\n"
        f"Date: {_date(dated.astimezone(UTC))}\r\n"
        f"Message-ID: {message_id(notification_id, message_id_domain)}\r\n"
        "Auto-Submitted: auto-generated\r\n"
        f"X-Fieldpost-Id: {notification_id}\r\n"
        "MIME-Version: 1.0\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Transfer-Encoding: {encoding}\r\n"
        "\r\n"
    )
    return head.encode("ascii") + content


def _date(at: datetime) -> str:
    """A time in UTC as RFC 5322 writes it; `email.utils.format_datetime` takes several times as long."""
    return (
        f"{_DAYS[at.weekday()]}, {at.day:02} {_MONTHS[at.month - 1]} {at.year:04}"
        f" {at.hour:02}:{at.minute:02}:{at.second:02} +0000"
    )


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def message_id(notification_id: str, domain: str) -> str:
    """The Message-ID, equal in every attempt so that duplicates can be recognised."""
    return f"<{notification_id}@{domain}>"


def stuffed(message: bytes) -> bytes:
    """Dot-stuff a message and append the final dot."""
    if message.startswith(b"."):
        message = b"." + message
    return message.replace(b"\r\n.", b"\r\n..") + b".\r\n"


def _content(body: str) -> tuple[str, bytes]:
    """The transfer encoding and the encoded body; all lines end in CRLF."""
    text = body.replace("\r\n", "\n").replace("\n", "\r\n")
    if not text.endswith("\r\n"):
        text += "\r\n"
    encoded = text.encode("utf-8", "replace")
    if text.isascii() and "\0" not in text:
        lines = text.split("\r\n")
        if max(map(len, lines)) <= LINE_BYTES_MAX and text.count("\r") == len(lines) - 1:
            return "7bit", encoded
    letters = b64encode(encoded)
    return "base64", b"".join(letters[start : start + 76] + b"\r\n" for start in range(0, len(letters), 76))


def _subject(subject: str) -> str:
    """The folded header value with a leading space; as encoded words unless it is plain ASCII."""
    # Text that looks like an encoded word would be displayed decoded, so it is encoded itself.
    if _PLAIN_SUBJECT.fullmatch(subject) and "=?" not in subject:
        if len(subject) <= _HEADER_WIDTH - len("Subject: "):
            return f" {subject}"
        if max(map(len, subject.split(" "))) < _HEADER_WIDTH:
            return _fold(subject)
    return "\r\n".join(f" =?utf-8?b?{word}?=" for word in _words(subject)) or " "


def _fold(subject: str) -> str:
    """Break lines before spaces; unfolding removes only the breaks, so all spaces are kept."""
    lines = []
    line, width = "", _HEADER_WIDTH - len("Subject:")
    for word in subject.split(" "):
        if line.strip() and word and len(line) + 1 + len(word) > width:
            lines.append(line)
            line, width = "", _HEADER_WIDTH
        line += f" {word}"
    return "\r\n".join([*lines, line])


def _words(subject: str) -> list[str]:
    """Base64 of pieces split at character boundaries, since each encoded word is decoded separately."""
    encoded = subject.encode("utf-8", "replace")
    words = []
    start = 0
    while start < len(encoded):
        end = min(start + _WORD_BYTES, len(encoded))
        while end < len(encoded) and encoded[end] & 0xC0 == 0x80:
            end -= 1
        words.append(b64encode(encoded[start:end]).decode("ascii"))
        start = end
    return words
