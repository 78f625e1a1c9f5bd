"""Times that people type into a form: without a zone of their own, in the zone that the form names beside them."""

import re
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from fieldpost.core.errors import InvalidInput

_LOCAL = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_ZONE = re.compile(r"[A-Za-z0-9_+/-]{1,64}", re.ASCII)
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


def moment_in(text: str, zone: str, field: str) -> datetime:
    """The moment, in UTC, that a clock in this zone (an IANA name; empty for UTC) showed as this text.

    A text with a zone of its own keeps it. InvalidInput names the field. Of an hour that comes twice, when clocks are
    put back, it is the first; one that was left out counts on from the hour before.
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
    """The moment as a field of type `datetime-local` has it, in this zone; with seconds only where there are any."""
    if moment is None:
        return ""
    local = moment.astimezone(zone_of(zone)).replace(tzinfo=None)
    has_seconds = bool(local.second or local.microsecond)
    return local.isoformat(timespec="seconds" if has_seconds else "minutes")


def zone_of(name: str) -> tzinfo:
    """The zone of this name, UTC for none; InvalidInput when there is no such zone here."""
    if not name:
        return UTC
    try:
        if not _ZONE.fullmatch(name):
            raise ValueError
        return ZoneInfo(name)
    # A name may lead to a folder or a file that is no zone: whatever is wrong with it, there is none.
    except (ValueError, OSError, KeyError):
        raise InvalidInput(
            "time.zone", f"unknown time zone {name[:64]!r}", field="zone", hint="leave it out for UTC"
        ) from None
