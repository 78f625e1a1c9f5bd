"""The filter of the audit log.

Nearly all entries record that a notification was sent or delivered; entries about actions are rare among them. A
filter by actor or target without a kind therefore selects actions only: an index answers that quickly, however long
the log is. Notifications sent to a list or by a script are found with the filters of notifications.
"""

from dataclasses import dataclass
from datetime import datetime

from fieldpost.core.audit import AuditChannel, AuditEntry, AuditKind, AuditStatus
from fieldpost.core.search.filters import AUDIT_FILTERS, TextFilter

ACTIONS = tuple(kind for kind in AuditKind if kind not in (AuditKind.NOTIFY_SEND, AuditKind.NOTIFY_DELIVER))
"""All kinds except the two that every notification produces."""
ERRORS = (AuditStatus.FAILED, AuditStatus.PARKED, AuditStatus.DISCARDED)
"""The statuses that "errors only" selects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter(TextFilter):
    """Selects audit entries; fields that are not set select all."""

    declared = AUDIT_FILTERS

    since: datetime | None = None
    """Occurred at or after this time."""
    until: datetime | None = None
    """Occurred before this time."""
    kinds: tuple[AuditKind, ...] = ()
    statuses: tuple[AuditStatus, ...] = ()
    channel: AuditChannel | None = None
    actor: str | None = None
    target: str | None = None
    site: str | None = None
    about: str | None = None
    """The id of a notification, a cached call or a bulk action."""

    @property
    def selected_kinds(self) -> tuple[AuditKind, ...]:
        """The kinds to select: actions only if actor or target is given without a kind; empty for all kinds."""
        is_of_notifications = self.channel in (None, AuditChannel.NOTIFICATION)
        if self.kinds or (self.actor is None and self.target is None and is_of_notifications):
            return self.kinds
        return ACTIONS

    def fits(self, entry: AuditEntry) -> bool:
        """Whether the entry matches; the SQL must agree with this."""
        kinds = self.selected_kinds
        return (
            (self.since is None or entry.occurred_at >= self.since)
            and (self.until is None or entry.occurred_at < self.until)
            and (not kinds or entry.kind in kinds)
            and (not self.statuses or entry.status in self.statuses)
            and (self.channel is None or entry.channel is self.channel)
            and (self.actor is None or entry.actor == self.actor)
            and (self.target is None or entry.target == self.target)
            and (self.site is None or entry.source_site_id == self.site)
            and (self.about is None or self._is_about(entry))
        )

    def _is_about(self, entry: AuditEntry) -> bool:
        """An action on a call or a bulk action has the id as its target."""
        return entry.correlation_id == self.about or (entry.kind in ACTIONS and entry.target == self.about)
