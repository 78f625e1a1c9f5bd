"""The event of a notification: `trigger`, or `resolve` if its incident is cleared.

The key by which PagerDuty recognises duplicates is the incident, so that the events that raise and clear it meet;
without an incident it is the notification's id. Cleared without an incident is a trigger too: no alert has that id as
its key, so PagerDuty would accept a `resolve` and drop it. Limits: 1,024 characters in a summary, 512 KB in all.
"""

import json

from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.fitting import Fitted, fit, fit_text
from fieldpost.core.notification import Severity
from fieldpost.core.times import to_text

SUMMARY_MAX = 1024
EVENT_BYTES_MAX = 500_000
SEVERITY_DEFAULT = Severity.ERROR


def pagerduty_event(envelope: Envelope) -> Fitted[bytes]:
    """The members of the event without its routing key, as JSON without the first brace."""
    is_resolved = envelope.is_cleared and envelope.incident is not None
    fixed: dict[str, object] = {
        "event_action": "resolve" if is_resolved else "trigger",
        "dedup_key": envelope.incident or envelope.notification_id,
        "client": "Fieldpost",
    }
    if envelope.link is not None:
        fixed |= {"client_url": envelope.link, "links": [{"href": envelope.link, "text": "Open in Fieldpost"}]}
    site = envelope.provenance.site if envelope.provenance is not None else None

    def compose(subject: str, body: str) -> bytes:
        details = {"body": body, "id": envelope.notification_id, "list": envelope.list_name}
        payload = {
            "summary": fit_text(subject, len, SUMMARY_MAX),
            "source": site or envelope.list_name,
            "severity": (envelope.severity or SEVERITY_DEFAULT).value,
            "timestamp": to_text(envelope.dated),
            "custom_details": details,
        }
        return json.dumps({**fixed, "payload": payload}, ensure_ascii=False, separators=(",", ":")).encode()[1:]

    return fit(envelope.subject, envelope.body, compose, len, EVENT_BYTES_MAX)
