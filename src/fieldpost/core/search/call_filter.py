"""The filter of a list of cached calls."""

from dataclasses import dataclass
from datetime import datetime

from fieldpost.core.search.filters import CALL_FILTERS, TextFilter
from fieldpost.core.sites.message import CallStatus, Category


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFilter(TextFilter):
    """Selects cached calls; fields that are not set select all."""

    declared = CALL_FILTERS

    site: str | None = None
    category: Category | None = None
    statuses: tuple[CallStatus, ...] = ()
    since: datetime | None = None
    """First seen by central at or after this time."""
    until: datetime | None = None
    """First seen before this time."""
    target: str | None = None
    """Words that must all occur in the summary of the target."""
    is_stuck: bool = False
    """Pending or retrying since before a time that the query is given."""
