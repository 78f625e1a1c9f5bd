"""The text of a message: subject, body, and the link or the id.

Networks bill by segment, so a text is cut to `segments_max` of them. The end is marked with three dots, because the
character for them is not in the GSM alphabet and would more than halve the room.
"""

from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.fitting import Fitted, fit
from fieldpost.core.sms.segments import ELLIPSIS, SmsEncoding, count_segments, foreign_characters, segments_of

FOREIGN_SHOWN = 10
_NAMES = {SmsEncoding.GSM7: "GSM-7", SmsEncoding.UCS2: "UCS-2"}


def sms_text(envelope: Envelope, segments_max: int) -> Fitted[str]:
    """The text within its segments. The link contains the id, so that one of them is enough."""

    def compose(subject: str, body: str) -> str:
        return _composed(envelope, subject, body)

    return fit(envelope.subject, envelope.body, compose, segments_of, segments_max, mark=ELLIPSIS)


def sms_cost(envelope: Envelope, segments_max: int) -> str:
    """The segments of the text for each number, and the reasons for it to cost more than its length suggests."""
    fitted = sms_text(envelope, segments_max)
    sent = count_segments(fitted.message)
    text = f"{sent.count} {'segment' if sent.count == 1 else 'segments'} of {_NAMES[sent.encoding]} per number"
    foreign = foreign_characters(fitted.message)
    if foreign:
        text += f", because it has characters outside the GSM alphabet: {foreign[:FOREIGN_SHOWN]}"
    if fitted.truncated_to is not None:
        whole = count_segments(_composed(envelope, envelope.subject, envelope.body))
        text += f"; truncated, because the whole text takes {whole.count} and segments_max is {segments_max}"
    return text


def _composed(envelope: Envelope, subject: str, body: str) -> str:
    return "\n".join(part for part in (subject, body.strip(), envelope.link or envelope.notification_id) if part)
