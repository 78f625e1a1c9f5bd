"""The filters of the site's event log."""

from collections.abc import Mapping

from fieldpost.core.search.filters import FilterField, FilterKind, read_filters
from fieldpost.core.search.tokens import tokenize
from fieldpost.core.sites.message import Category
from fieldpost.site.buffer.event_log import EventKind, SiteEventFilter

EVENT_FILTERS = (
    FilterField("kind", FilterKind.CHOICE, "Only events of this kind", choices=tuple(EventKind)),
    FilterField("severity", FilterKind.CHOICE, "Only events of this severity", choices=("info", "warning", "error")),
    FilterField("category", FilterKind.CHOICE, "Only events of this message category", choices=tuple(Category)),
    FilterField("message_id", FilterKind.TEXT, "Only events about this notification or call"),
    FilterField("target", FilterKind.TEXT, "Only events about this external system or connection"),
    FilterField("instance", FilterKind.TEXT, "Only events about this machine or unit"),
    FilterField("script", FilterKind.TEXT, "Only events from this script"),
    FilterField("since", FilterKind.TIME, "Only events at or after this time (UTC)"),
    FilterField("until", FilterKind.TIME, "Only events before this time (UTC)"),
    FilterField("words", FilterKind.WORDS, "Words that must all occur in the text"),
)


def event_filter(given: Mapping[str, str]) -> SiteEventFilter:
    """Build the filter from field texts, or raise InvalidInput naming the field."""
    values = read_filters(EVENT_FILTERS, given)
    return SiteEventFilter(**values | {"words": frozenset(tokenize(values.get("words", "")))})
