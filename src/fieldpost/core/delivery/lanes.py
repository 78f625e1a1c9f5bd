"""Sharing a node's free slots between the fresh lane and the retry lane.

First attempts must not wait behind retries, and retries must not starve: a quarter of the slots is reserved for the
retry lane, and each lane may use slots that the other leaves free.
"""

from enum import StrEnum

from fieldpost.core.notification import Status

RETRY_SHARE = 4
"""One slot in this many is reserved for the retry lane."""


class Lane(StrEnum):
    FRESH = "fresh"
    RETRY = "retry"

    @property
    def status(self) -> Status:
        """The status of notifications in this lane. The lane is derived from the status and not stored."""
        return Status.PENDING if self is Lane.FRESH else Status.RETRYING


def retry_first(slots: int, free: int, retrying_now: int) -> int:
    """How many of the free slots the retry lane may take before the fresh lane is served."""
    return max(0, min(free, max(1, slots // RETRY_SHARE) - retrying_now))
