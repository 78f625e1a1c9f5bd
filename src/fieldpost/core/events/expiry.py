"""When parked webhook notifications expire: the scan time `[webhooks] expire_parked_at`.

02:30            every day at that time, in UTC
sunday           every Sunday at 00:00
sunday 02:30     every Sunday at that time
never            no scan; `disabled`, `n/a` and an empty text mean the same
"""

import re
from dataclasses import dataclass
from datetime import datetime, time, timedelta

from fieldpost.core.errors import InvalidInput

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NEVER = ("", "never", "disabled", "n/a")
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])", re.ASCII)


@dataclass(frozen=True, slots=True)
class ScanTime:
    """A time of the day, on one weekday (Monday is 0) or on all."""

    at: time
    weekday: int | None = None

    def next_after(self, moment: datetime) -> datetime:
        """The first scan after this moment."""
        first = moment.replace(hour=self.at.hour, minute=self.at.minute, second=0, microsecond=0)
        days = 0 if self.weekday is None else (self.weekday - first.weekday()) % 7
        first += timedelta(days=days)
        return first if first > moment else first + timedelta(days=1 if self.weekday is None else 7)


def parse_scan_time(text: object, field: str) -> ScanTime | None:
    """Parse a scan time; None for never. Raises InvalidInput."""
    words = text.lower().split() if type(text) is str else ["?"]
    if " ".join(words) in _NEVER:
        return None
    day = words.pop(0) if words[0] in WEEKDAYS else None
    found = _TIME.fullmatch(words[0]) if len(words) == 1 else None
    if found is None and (words or day is None):
        raise InvalidInput(
            "scan_time.invalid",
            f"{field} must be HH:MM, a weekday, a weekday and HH:MM (in UTC), or never, got {text!r:.64}",
            field=field,
        )
    at = time(int(found[1]), int(found[2])) if found else time(0, 0)
    return ScanTime(at, None if day is None else WEEKDAYS.index(day))
