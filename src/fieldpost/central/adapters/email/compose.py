"""A notification as a mail: plain text, as bytes, ready for DATA.

The bytes are put together by hand, since the library's message objects cost many times what sending does. Three things
must always hold, whatever the text: lines end in CRLF and no CR or LF stands alone; no text can end a header or begin
another; no line is longer than 998 bytes. A text that would break one of them travels in base64.

The recipients are not named (they are BCC, known to the envelope alone). Message-ID and Date depend on nothing but the
notification, so that a second copy can be recognised as a copy.
"""

import re
from base64 import b64encode
from datetime import UTC, datetime
from email.utils import format_datetime

LINE_BYTES_MAX = 998

_HEADER_WIDTH = 76
_WORD_BYTES = 39
"""Of text in one encoded word: with `Subject: ` before it the line stays within the 76 characters of RFC 2047."""

_PLAIN_SUBJECT = re.compile(r"[!-~]+(?: +[!-~]+)*")
_LINE_END = re.compile(r"\r\n|\n")


def compose(*, notification_id: str, from_address: str, subject: str, body: str, dated: datetime) -> bytes:
    """The whole message, CRLF at its end, dots not yet doubled."""
    encoding, content = _content(body)
    head = (
        f"From: {from_address}\r\n"
        "To: undisclosed-recipients:;\r\n"
        f"Subject:{_subject(subject)}\r\n"
        f"Date: {format_datetime(dated.astimezone(UTC))}\r\n"
        f"Message-ID: {message_id(notification_id, from_address)}\r\n"
        "Auto-Submitted: auto-generated\r\n"
        f"X-Fieldpost-Id: {notification_id}\r\n"
        "MIME-Version: 1.0\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Transfer-Encoding: {encoding}\r\n"
        "\r\n"
    )
    return head.encode("ascii") + content


def message_id(notification_id: str, from_address: str) -> str:
    """The same for every attempt, so that mail systems and readers see copies as copies."""
    return f"<{notification_id}@{from_address.rpartition('@')[2]}>"


def stuffed(message: bytes) -> bytes:
    """The message as it travels: lines that begin with a dot get another, and a dot alone ends it."""
    if message.startswith(b"."):
        message = b"." + message
    return message.replace(b"\r\n.", b"\r\n..") + b".\r\n"


def _content(body: str) -> tuple[str, bytes]:
    """The text in the form of mail: lines end in CRLF, the last one too."""
    text = _LINE_END.sub("\r\n", body)
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
    """The header's value with the space before it, folded; in encoded words unless it is plain and stays what it is."""
    # A text that looks like an encoded word would be shown decoded, so it is encoded itself.
    if _PLAIN_SUBJECT.fullmatch(subject) and "=?" not in subject:
        if len(subject) <= _HEADER_WIDTH - len("Subject: "):
            return f" {subject}"
        if max(map(len, subject.split(" "))) < _HEADER_WIDTH:
            return _fold(subject)
    return "\r\n".join(f" =?utf-8?b?{word}?=" for word in _words(subject)) or " "


def _fold(subject: str) -> str:
    """Break lines before spaces; what unfolds them takes out only the breaks, so every space is kept."""
    lines = []
    line, width = "", _HEADER_WIDTH - len("Subject:")
    for word in subject.split(" "):
        if line.strip() and word and len(line) + 1 + len(word) > width:
            lines.append(line)
            line, width = "", _HEADER_WIDTH
        line += f" {word}"
    return "\r\n".join([*lines, line])


def _words(subject: str) -> list[str]:
    """Base64 of pieces that end where a character ends, as each encoded word must stand for itself."""
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
