"""Caught messages of chats and phones, and the paragraphs as which the inbox shows them."""

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from fieldpost.core.sms.segments import count_segments


class ChatKind(StrEnum):
    TEAMS = "teams"
    SLACK = "slack"
    TELEGRAM = "telegram"
    SMS = "sms"

    @property
    def label(self) -> str:
        return "SMS" if self is ChatKind.SMS else self.value.capitalize()


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A part of a message: its `title`, its `body`, or a `note` in small print."""

    style: str
    text: str


@dataclass(frozen=True)
class ReceivedChat:
    """One message that a provider of the demo accepted."""

    number: int
    kind: ChatKind
    target: str
    """The chat, the label of the hook, or the phone number."""
    received_at: datetime
    notification_id: str
    text: str
    """As the receiver reads it."""
    message: Mapping[str, Any]
    """The request as the provider understood it."""

    @property
    def paragraphs(self) -> list[Paragraph]:
        match self.kind:
            case ChatKind.TEAMS:
                return _card(self.message)
            case ChatKind.SLACK:
                return _blocks(self.message)
            case ChatKind.TELEGRAM | ChatKind.SMS:
                return _lines(self.text)

    @property
    def subject(self) -> str:
        """The first line."""
        return self.paragraphs[0].text.partition("\n")[0] if self.paragraphs else ""

    @property
    def segments(self) -> int | None:
        """How many segments a text message takes; None for chats."""
        return count_segments(self.text).count if self.kind is ChatKind.SMS else None

    @property
    def source(self) -> str:
        """The message as JSON."""
        return json.dumps(self.message, indent=2, ensure_ascii=False)


def _card(card: Mapping[str, Any]) -> list[Paragraph]:
    """The blocks of an Adaptive Card: bold is the title, subtle the small print."""
    found = []
    for block in card["body"]:
        runs = block["inlines"]
        style = "title" if runs[0].get("weight") == "Bolder" else "note" if runs[0].get("isSubtle") else "body"
        found.append(Paragraph(style, "".join(run["text"] for run in runs)))
    return found


def _blocks(message: Mapping[str, Any]) -> list[Paragraph]:
    """The blocks of a message for Slack. A context may contain a link, which is left out."""
    if "blocks" not in message:
        return _lines(str(message["text"]))
    styles = {"header": "title", "section": "body", "context": "note"}
    return [
        Paragraph(styles[block["type"]], html.unescape(part["text"]))
        for block in message["blocks"]
        for part in block.get("elements") or [block["text"]]
        if part["type"] == "plain_text"
    ]


def _lines(text: str) -> list[Paragraph]:
    """Subject, body, and the line with the id: the first line, the last one, and all between them."""
    first, _, rest = text.partition("\n")
    body, _, end = rest.strip().rpartition("\n")
    parts = (("title", first), ("body", body.strip()), ("note", end))
    return [Paragraph(style, part) for style, part in parts if part]
