"""The alarm fields of a notification: severity, incident, and whether it reports that the incident is over."""

from fieldpost.core.errors import InvalidInput
from fieldpost.core.notification import Severity
from fieldpost.core.text import check_label

INCIDENT_LENGTH_MAX = 255
"""Characters, as PagerDuty limits the key of an incident."""
INCIDENT_BYTES_MAX = 4 * INCIDENT_LENGTH_MAX
_SEVERITIES = {severity.value: severity for severity in Severity}


def check_severity(value: object, field: str = "severity") -> Severity | None:
    """The severity of this name; None stays None."""
    if value is None:
        return None
    severity = _SEVERITIES.get(value) if isinstance(value, str) else None
    if severity is None:
        raise InvalidInput(
            "severity.unknown", f"{field} must be one of {', '.join(_SEVERITIES)}, got {str(value)[:64]!r}", field=field
        )
    return severity


def check_incident(value: object, field: str = "incident") -> str | None:
    """The subject of an alarm: one line of at most 255 characters; None stays None."""
    if value is None:
        return None
    incident = check_label(value, field, INCIDENT_BYTES_MAX)
    if len(incident) > INCIDENT_LENGTH_MAX:
        raise InvalidInput(
            "incident.length",
            f"{field} must have at most {INCIDENT_LENGTH_MAX} characters, got {len(incident)}",
            field=field,
        )
    return incident


def check_is_cleared(value: object, field: str = "is_cleared") -> bool:
    if type(value) is not bool:
        raise InvalidInput("text.type", f"{field} must be a bool, not {type(value).__name__}", field=field)
    return value
