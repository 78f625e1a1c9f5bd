"""The filter of a list of notifications."""

from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache

from fieldpost.core.kpi import Thresholds
from fieldpost.core.notification import LIVE, NotificationKind, Severity, Status
from fieldpost.core.search.filters import NOTIFICATION_FILTERS, TextFilter
from fieldpost.core.search.fingerprint import fingerprint_key
from fieldpost.core.search.tokens import tokenize


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(TextFilter):
    """Selects notifications; fields that are not set select all."""

    declared = NOTIFICATION_FILTERS

    statuses: tuple[Status, ...] = ()
    kind: NotificationKind | None = None
    type: str | None = None
    site: str | None = None
    list_name: str | None = None
    subscription_id: str | None = None
    event_id: str | None = None
    severities: tuple[Severity, ...] = ()
    incident: str | None = None
    since: datetime | None = None
    """Arrived at central at or after this time."""
    until: datetime | None = None
    """Arrived before this time."""
    is_stuck: bool = False
    is_overdue: bool = False
    stuck_before: datetime | None = None
    """In its present cycle since before this time; set by `resolved` in place of `is_stuck`."""
    stuck_at: datetime | None = None
    """The time of the query, set with `stuck_before`: a webhook that is due later is not stuck."""
    overdue_before: datetime | None = None
    """Due and unclaimed since before this time; set by `resolved` in place of `is_overdue`."""
    subject: str | None = None
    """Words that must all occur in the subject."""
    error_key: str | None = None
    """The key of an error group (`fingerprint_key`). Selects parked notifications unless statuses are given."""

    @property
    def words(self) -> tuple[str, ...]:
        return tokenize(self.subject) if self.subject is not None else ()

    def fits_text(self, subject: str, error: str | None) -> bool:
        """Whether subject and error match. Decided here, not in SQL, so that all databases give the same result."""
        if self.subject is not None and not _words_of(self.subject) <= set(tokenize(subject)):
            return False
        return self.error_key is None or (error is not None and fingerprint_key(error) == self.error_key)

    def resolved(self, now: datetime, by: Thresholds) -> "Filter | None":
        """The same filter with `is_stuck` and `is_overdue` replaced by statuses and times; None if no row can match."""
        if not self.is_stuck and not self.is_overdue:
            return replace(self, statuses=self.statuses or ((Status.PARKED,) if self.error_key is not None else ()))
        live = tuple(status for status in self.statuses or Status if status in LIVE)
        if not live:
            return None
        stuck_before = now - by.stuck_after if self.is_stuck else None
        overdue_before = now - by.overdue_after if self.is_overdue else None
        # A notification arrived before its cycle started and before it became due.
        until = min(at for at in (self.until, stuck_before, overdue_before) if at is not None)
        return replace(
            self,
            statuses=live,
            until=until,
            stuck_before=stuck_before,
            stuck_at=now if self.is_stuck else None,
            overdue_before=overdue_before,
            is_stuck=False,
            is_overdue=False,
        )


@lru_cache(maxsize=64)
def _words_of(subject: str) -> frozenset[str]:
    """The words of a filter's subject, cached: one search compares them with thousands of subjects."""
    return frozenset(tokenize(subject))
