"""Times in forms: local times in the time zone that the form submits with them."""

import re
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from fieldpost.core.errors import InvalidInput

_LOCAL = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_ZONE = re.compile(r"[A-Za-z0-9_+/-]{1,64}", re.ASCII)
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


def moment_in(text: str, zone: str, field: str) -> datetime:
    """The UTC time of a local time in this zone (an IANA name; empty for UTC).

    An explicit offset in the text wins. InvalidInput names the field. When clocks change, a repeated hour means its
    first occurrence and a skipped hour continues from the hour before.
    """
    where = zone_of(zone)
    try:
        if not _LOCAL.fullmatch(text):
            raise ValueError
        moment = datetime.fromisoformat(text)
        moment = (moment if moment.tzinfo else moment.replace(tzinfo=where)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInput(
            "filter.time",
            f"{field} must be a date and a time, not {text[:64]!r}",
            field=field,
            hint="write it as 2026-11-15T08:00",
        ) from None
    return max(moment, _EARLIEST)


def local_text(moment: datetime | None, zone: str = "") -> str:
    """The time as the value of a `datetime-local` input in this zone, with seconds only if not zero."""
    if moment is None:
        return ""
    local = moment.astimezone(zone_of(zone)).replace(tzinfo=None)
    has_seconds = bool(local.second or local.microsecond)
    return local.isoformat(timespec="seconds" if has_seconds else "minutes")


def zone_of(name: str) -> tzinfo:
    """The time zone of this name, UTC if empty; InvalidInput if the zone is unknown."""
    if not name:
        return UTC
    try:
        if not _ZONE.fullmatch(name):
            raise ValueError
        return ZoneInfo(name)
    # The name may be a folder or a file that does not contain a zone.
    except (ValueError, OSError, KeyError):
        raise InvalidInput(
            "time.zone", f"unknown time zone {name[:64]!r}", field="zone", hint="leave it out for UTC"
        ) from None
