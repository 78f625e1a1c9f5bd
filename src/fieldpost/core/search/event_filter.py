"""The filter of a list of events."""

from dataclasses import dataclass
from datetime import datetime

from fieldpost.core.search.filters import EVENT_FILTERS, TextFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter(TextFilter):
    """Selects events; fields that are not set select all."""

    declared = EVENT_FILTERS

    topic: str | None = None
    source: str | None = None
    resource: str | None = None
    correlation_id: str | None = None
    since: datetime | None = None
    """Recorded at or after this time."""
    until: datetime | None = None
    """Recorded before this time."""
