"""Queries of the site's event log, by the filters that central and the local API use, too."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

import apsw

from fieldpost.core.search.filters import SITE_EVENT_FILTERS, TextFilter
from fieldpost.core.search.tokens import tokenize
from fieldpost.core.sites.message import Category
from fieldpost.core.sites.site_event import EventSeverity
from fieldpost.core.times import to_microseconds
from fieldpost.site.buffer.event_log import EVENT_ROW, SiteEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteEventFilter(TextFilter):
    """Criteria for entries (`core.search.filters.SITE_EVENT_FILTERS`); None matches all."""

    declared = SITE_EVENT_FILTERS

    kind: str | None = None
    severity: EventSeverity | None = None
    category: Category | None = None
    message_id: str | None = None
    target: str | None = None
    instance: str | None = None
    script: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    words: str = ""
    """Words that must all occur in the text, in any case (`core.search.tokens`)."""


def query(
    cursor: apsw.Cursor, wanted: SiteEventFilter | None = None, *, before: int | None = None, limit: int = 100
) -> list[SiteEvent]:
    """The newest matching entries, newest first; `before` is the last sequence of the previous page."""
    wanted = wanted or SiteEventFilter()
    terms, parameters = ["sequence < :before"], dict[str, Any](before=before or 1 << 62)
    for column in ("kind", "severity", "category", "message_id", "target", "instance", "script"):
        value = getattr(wanted, column)
        if value is not None:
            terms.append(f"{column} = :{column}")
            parameters[column] = str(value)
    for name, sign in (("since", ">="), ("until", "<")):
        moment = getattr(wanted, name)
        if moment is not None:
            terms.append(f"occurred_at {sign} :{name}")
            parameters[name] = to_microseconds(moment)
    statement = f"SELECT {EVENT_ROW.columns} FROM events WHERE {' AND '.join(terms)} ORDER BY sequence DESC"
    found: Iterator[SiteEvent] = map(EVENT_ROW.read, cursor.execute(statement, parameters))
    if words := set(tokenize(wanted.words)):
        # Matched here, with the tokenizer that is used everywhere; the log is bounded, so the scan is quick.
        found = filter(lambda entry: words <= set(tokenize(entry.text)), found)
    return list(islice(found, limit))
