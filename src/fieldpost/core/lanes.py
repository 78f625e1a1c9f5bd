"""How a node's free slots are shared between the fresh and the retry lane.

First attempts must not wait behind retries, nor retries starve: the retry lane owns a quarter of the slots, and what
one lane leaves the other takes.
"""

from enum import StrEnum

from fieldpost.core.notification import Status

RETRY_SHARE = 4
"""One slot in so many belongs to the retry lane."""


class Lane(StrEnum):
    FRESH = "fresh"
    RETRY = "retry"

    @property
    def status(self) -> Status:
        """A row's lane follows from its status, so it is not stored a second time."""
        return Status.PENDING if self is Lane.FRESH else Status.RETRYING


def retry_first(slots: int, free: int, retrying_now: int) -> int:
    """How many of the free slots the retry lane may take before the fresh lane is asked."""
    return max(0, min(free, max(1, slots // RETRY_SHARE) - retrying_now))
