"""A received mail: envelope, bytes, and parsed headers and body."""

import re
from dataclasses import dataclass
from datetime import datetime
from email import message_from_bytes
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message
from functools import cached_property

_FOLD = re.compile(r"\r?\n[ \t]+")
_MESSAGE_ID = re.compile(rb"(?:\A|\n)message-id:[ \t]*(?:\r?\n[ \t]+)?([^\r\n]+)", re.IGNORECASE)


@dataclass(frozen=True)
class ReceivedMail:
    """One accepted mail. Headers and body are parsed on access, so that receiving stays fast."""

    number: int
    """Ascending over all connections."""
    connection: int
    """The number of the connection."""
    sender: str
    """MAIL FROM; empty for the null sender."""
    recipients: tuple[str, ...]
    """The accepted RCPT TO addresses, in order; the headers may name others."""
    received_at: datetime
    raw: bytes
    """The message without dot-stuffing; only its header section if the server has `keep_raw=False`."""
    is_whole: bool = True
    parameters: tuple[str, ...] = ()
    """The parameters of MAIL in capitals, such as `BODY=8BITMIME`."""

    @cached_property
    def message_id(self) -> str | None:
        """The Message-ID header, with angle brackets."""
        return find_message_id(self.raw)

    @property
    def subject(self) -> str:
        """The decoded subject; empty without one."""
        return self.header("Subject") or ""

    @cached_property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """All headers in order, decoded and unfolded; invalid lines are left out."""
        # Parsed by hand: tests send invalid headers on purpose, for which the library's parser may raise.
        lines = _FOLD.sub(" ", head_of(self.raw).decode("utf-8", "replace")).split("\n")
        parted = (line.partition(":") for line in lines)
        return tuple((name.strip(), _decoded(value.strip())) for name, colon, value in parted if colon)

    def header(self, name: str) -> str | None:
        """The first header of this name, decoded and unfolded, or None."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)

    @cached_property
    def body(self) -> str:
        """The decoded plain text with LF line ends, including that of the last line."""
        if not self.is_whole:
            raise LookupError(f"mail {self.number}: the body was not kept, since the server has keep_raw=False")
        parts = [part for part in message_from_bytes(self.raw).walk() if part.get_content_maintype() == "text"]
        plain = [part for part in parts if part.get_content_subtype() == "plain"]
        part = next(iter(plain or parts), None)
        return "" if part is None else _text(part).replace("\r\n", "\n")


def head_of(raw: bytes) -> bytes:
    """The header section including the empty line after it."""
    end = raw.find(b"\r\n\r\n")
    return raw if end < 0 else raw[: end + 4]


def find_message_id(raw: bytes) -> str | None:
    """The Message-ID, found without parsing the whole mail."""
    found = _MESSAGE_ID.search(head_of(raw))
    return found[1].decode("utf-8", "replace").strip() if found else None


def _decoded(value: str) -> str:
    if "=?" not in value:
        return value
    try:
        return str(make_header(decode_header(value)))
    except (MessageError, LookupError, ValueError):  # show undecodable values unchanged
        return value


def _text(part: Message) -> str:
    payload = part.get_payload(decode=True)
    content = payload if isinstance(payload, bytes) else b""
    try:
        return content.decode(part.get_content_charset("utf-8"))
    except (LookupError, ValueError):  # unknown or wrong charset
        return content.decode("utf-8", "replace")
