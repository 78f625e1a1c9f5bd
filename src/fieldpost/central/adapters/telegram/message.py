"""The text of a Telegram message: subject in bold, body, origin and link.

No parse mode is set, so that Telegram takes no character of the text for markup; the bold subject is an *entity*, a
range counted in UTF-16 units. Limit: 4,096 UTF-16 units.
"""

import json

from fieldpost.central.adapters.provider import describe_origin
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.fitting import Fitted, fit, in_utf16_units

UNITS_MAX = 4096


def telegram_text(envelope: Envelope) -> Fitted[tuple[str, str]]:
    """The text, and the JSON of its entities."""
    end = describe_origin(envelope) + (f"\n{envelope.link}" if envelope.link else "")

    def compose(subject: str, body: str) -> tuple[str, str]:
        text = "\n\n".join(part for part in (subject, body.rstrip(), end) if part)
        return text, subject

    fitted = fit(envelope.subject, envelope.body, compose, lambda message: in_utf16_units(message[0]), UNITS_MAX)
    text, subject = fitted.message
    entities = [{"type": "bold", "offset": 0, "length": in_utf16_units(subject)}] if subject else []
    return Fitted((text, json.dumps(entities, separators=(",", ":"))), fitted.truncated_to)
