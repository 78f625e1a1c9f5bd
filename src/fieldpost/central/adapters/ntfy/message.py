"""The JSON of an ntfy message.

The server turns a message of more than 4,096 bytes into an attachment, and rejects JSON of more than twice that size.
From version 2.16 on, a second copy with the same `sequence_id` replaces the first on the phone.
"""

import json

from fieldpost.central.adapters.provider import describe_origin
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.fitting import Fitted, fit, in_bytes
from fieldpost.core.notification import Severity

MESSAGE_BYTES_MAX = 4096
JSON_BYTES_MAX = 2 * MESSAGE_BYTES_MAX
_TOPIC_BYTES = 100
"""Room for the topic, which is added for each target."""
PRIORITIES = {Severity.INFO: 2, Severity.WARNING: 3, Severity.ERROR: 4, Severity.CRITICAL: 5}
PRIORITY_DEFAULT = 3


def ntfy_json(envelope: Envelope) -> Fitted[str]:
    """The members of the message without the topic, as JSON without its braces."""
    end = describe_origin(envelope)
    priority = PRIORITIES.get(envelope.severity, PRIORITY_DEFAULT) if envelope.severity else PRIORITY_DEFAULT
    fixed: dict[str, object] = {
        "priority": PRIORITY_DEFAULT if envelope.is_cleared else priority,
        "sequence_id": envelope.notification_id,
    }
    if envelope.link is not None:
        fixed["click"] = envelope.link

    def compose(subject: str, body: str) -> tuple[int, str]:
        message = "\n\n".join(part for part in (body.rstrip(), end) if part)
        members = {"title": subject, "message": message, **fixed}
        return in_bytes(message), json.dumps(members, ensure_ascii=False, separators=(",", ":"))[1:-1]

    def size(made: tuple[int, str]) -> int:
        message_bytes, members = made
        excess = in_bytes(members) + _TOPIC_BYTES - JSON_BYTES_MAX
        return max(message_bytes, MESSAGE_BYTES_MAX + excess)

    fitted = fit(envelope.subject, envelope.body, compose, size, MESSAGE_BYTES_MAX)
    return Fitted(fitted.message[1], fitted.truncated_to)
