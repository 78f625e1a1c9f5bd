"""A mail as the server took it in: its envelope, its bytes, and what a reader wants to know of them."""

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
    """One accepted mail. What it says is parsed when somebody asks, so that taking it in stays quick."""

    number: int
    """Grows from mail to mail, over all connections."""
    connection: int
    """The number of the connection it came by."""
    sender: str
    """MAIL FROM; empty for the null sender."""
    recipients: tuple[str, ...]
    """The accepted RCPT TO, in their order; the headers may name others, or nobody."""
    received_at: datetime
    raw: bytes
    """The message, byte by byte, dot-stuffing undone; only its header section when the server keeps no more."""
    is_whole: bool = True
    parameters: tuple[str, ...] = ()
    """What came after the address in MAIL, as `BODY=8BITMIME`, in capitals."""

    @cached_property
    def message_id(self) -> str | None:
        """With its angle brackets, as it stands in the header."""
        return find_message_id(self.raw)

    @property
    def subject(self) -> str:
        """Decoded; empty when there is none."""
        return self.header("Subject") or ""

    @cached_property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """All of them in their order, decoded and unfolded; a line that is no header is left out."""
        # By hand, since a test server sees headers that are wrong on purpose, and the library's parser may raise there.
        lines = _FOLD.sub(" ", head_of(self.raw).decode("utf-8", "replace")).split("\n")
        parted = (line.partition(":") for line in lines)
        return tuple((name.strip(), _decoded(value.strip())) for name, colon, value in parted if colon)

    def header(self, name: str) -> str | None:
        """The first header of this name, decoded and unfolded; None when there is none."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)

    @cached_property
    def body(self) -> str:
        """The plain text, decoded, lines ended by LF; the last line keeps its end, as it travelled."""
        if not self.is_whole:
            raise LookupError(f"mail {self.number}: the body was not kept, since the server has keep_raw=False")
        parts = [part for part in message_from_bytes(self.raw).walk() if part.get_content_maintype() == "text"]
        plain = [part for part in parts if part.get_content_subtype() == "plain"]
        part = next(iter(plain or parts), None)
        return "" if part is None else _text(part).replace("\r\n", "\n")


def head_of(raw: bytes) -> bytes:
    """The header section with the empty line that ends it."""
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
    except (MessageError, LookupError, ValueError):  # what cannot be decoded is shown as it came
        return value


def _text(part: Message) -> str:
    payload = part.get_payload(decode=True)
    content = payload if isinstance(payload, bytes) else b""
    try:
        return content.decode(part.get_content_charset("utf-8"))
    except (LookupError, ValueError):  # a charset nobody knows, or not the one it says
        return content.decode("utf-8", "replace")
