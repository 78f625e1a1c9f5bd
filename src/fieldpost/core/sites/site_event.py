"""The kinds of entries in a site's event log."""

from enum import StrEnum
from typing import Literal

EventSeverity = Literal["info", "warning", "error"]


class SiteEventKind(StrEnum):
    """The kind of event that an entry of the event log reports."""

    QUEUED = "queued"
    DELIVERED = "delivered"
    RETRIED = "retried"
    PARKED = "parked"
    FAILED = "failed"
    REJECTED = "rejected"
    REQUEUED = "requeued"
    DISCARDED = "discarded"
    LATE = "late"
    FORWARDING_FAILED = "forwarding_failed"
    FORWARDING_RESUMED = "forwarding_resumed"
    WAITING_LONG = "waiting_long"
    DUPLICATE = "duplicate"
    """Both nodes of a pair executed a call, or used the same key, before they heard of each other."""
    UNCERTAIN = "uncertain"
    """In a pair: an attempt ended without a known result, so the call may be executed twice."""
    PAIR_SWITCHED = "pair_switched"
    """This node of a pair became the leader or stopped leading, or the pair was ended."""
    PAIR_REPAIRED = "pair_repaired"
    """Rows of the two nodes differed and were copied again."""
    SALVAGED = "salvaged"
    """Written by a salvage into the new buffer, with its result."""

    @property
    def severity(self) -> EventSeverity:
        return _SEVERITIES.get(self, "info")


_SEVERITIES: dict[SiteEventKind, EventSeverity] = {
    SiteEventKind.RETRIED: "warning",
    SiteEventKind.LATE: "warning",
    SiteEventKind.FORWARDING_FAILED: "warning",
    SiteEventKind.WAITING_LONG: "warning",
    SiteEventKind.DUPLICATE: "warning",
    SiteEventKind.UNCERTAIN: "warning",
    SiteEventKind.PAIR_SWITCHED: "warning",
    SiteEventKind.PAIR_REPAIRED: "warning",
    SiteEventKind.SALVAGED: "warning",
    SiteEventKind.PARKED: "error",
    SiteEventKind.FAILED: "error",
    SiteEventKind.REJECTED: "error",
}
