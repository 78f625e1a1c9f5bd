"""The Adaptive Card of a notification, as the attachment of a message.

All texts are *TextRuns*: unlike TextBlocks they have no Markdown. Renderers replace only one thing in them,
the macros `{{DATE(…)}}` and `{{TIME(…)}}`; a text is split between their braces, which leaves it unchanged.

Teams rejects messages of more than 28 KB in its own encoding; 18,000 bytes of JSON are within it.
"""

import json
import re
from collections.abc import Sequence

from fieldpost.central.adapters.provider import describe_origin
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.fitting import Fitted, fit
from fieldpost.core.notification import Severity

CARD_BYTES_MAX = 18_000
COLORS = {Severity.WARNING: "Warning", Severity.ERROR: "Attention", Severity.CRITICAL: "Attention"}
_MACRO = re.compile(r"(?<=\{)(?=\{(?:DATE|TIME)\()")


def teams_card(envelope: Envelope) -> Fitted[bytes]:
    """The request body."""
    origin = _block([describe_origin(envelope)], size="Small", isSubtle=True)
    color = "Good" if envelope.is_cleared else COLORS.get(envelope.severity) if envelope.severity else None
    style = {"weight": "Bolder", "size": "Medium", **({"color": color} if color else {})}
    actions = [{"type": "Action.OpenUrl", "title": "Open in Fieldpost", "url": envelope.link}] if envelope.link else []

    def compose(subject: str, body: str) -> bytes:
        texts = [_block(_runs(subject), **style), _block(_runs(body.rstrip())), origin]
        card = {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "type": "AdaptiveCard",
            "version": "1.4",
            "msteams": {"width": "Full"},
            "body": [text for text in texts if text["inlines"]],
            "actions": actions,
        }
        attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
        message = {"type": "message", "attachments": [attachment]}
        return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()

    return fit(envelope.subject, envelope.body, compose, len, CARD_BYTES_MAX)


def _runs(text: str) -> Sequence[str]:
    """The parts of a text in which a renderer finds no macro."""
    return _MACRO.split(text) if "{{" in text else [text] if text else []


def _block(texts: Sequence[str], **style: object) -> dict[str, object]:
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **style} for text in texts]}
