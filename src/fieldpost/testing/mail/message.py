"""A mail as the server took it in: its envelope, its bytes, and what a reader wants to know of them."""

import re
from dataclasses import dataclass
from datetime import datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.parser import HeaderParser
from functools import cached_property
from typing import cast

# Unknown bytes and broken encodings must be shown, not raise: a test server sees mails that are wrong on purpose.
_POLICY = policy.default.clone(raise_on_defect=False)
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
        """All of them in their order, decoded and unfolded."""
        return tuple((name, _readable(value)) for name, value in self._head.items())

    def header(self, name: str) -> str | None:
        """The first header of this name, decoded and unfolded; None when there is none."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)

    @cached_property
    def body(self) -> str:
        """The plain text, decoded, lines ended by LF; the last line keeps its end, as it travelled."""
        if not self.is_whole:
            raise LookupError(f"mail {self.number}: the body was not kept, since the server has keep_raw=False")
        part = self._message.get_body(preferencelist=("plain", "html"))
        if part is None:
            return ""
        try:
            text = part.get_content()
        except (LookupError, UnicodeDecodeError):  # a charset nobody knows
            text = cast(bytes, part.get_payload(decode=True)).decode("utf-8", "replace")
        return str(text).replace("\r\n", "\n")

    @cached_property
    def _head(self) -> EmailMessage:
        # A mail sent with SMTPUTF8 has headers in UTF-8, of which the parser for bytes would make question marks.
        text = head_of(self.raw).decode("utf-8", "replace")
        return HeaderParser(policy=_POLICY).parsestr(text)

    @cached_property
    def _message(self) -> EmailMessage:
        return message_from_bytes(self.raw, policy=_POLICY)


def head_of(raw: bytes) -> bytes:
    """The header section with the empty line that ends it."""
    end = raw.find(b"\r\n\r\n")
    return raw if end < 0 else raw[: end + 4]


def find_message_id(raw: bytes) -> str | None:
    """The Message-ID, found without parsing the whole mail."""
    found = _MESSAGE_ID.search(head_of(raw))
    return found[1].decode("utf-8", "replace").strip() if found else None


def _readable(value: object) -> str:
    return re.sub(r"[\r\n]+[ \t]*", " ", str(value)).strip()
