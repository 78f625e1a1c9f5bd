"""Bulk actions: one verb on many parked notifications, with progress.

The set of notifications is fixed at the start: those that were parked at that moment. The action first *gathers* them
with their current versions, then applies its verb to each that still has that version. A notification that has changed
meanwhile is a conflict and stays as it is.

A retry may run *in stages*: one notification, then ten more, then the rest, each stage after the result of the one
before. If a previous error occurs again, the cause is not fixed yet, and the action halts.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from fieldpost.core.errors import InvalidInput
from fieldpost.core.notification import Status
from fieldpost.core.search.fingerprint import fingerprint_key
from fieldpost.core.search.notification_filter import Filter

RECOVER = "recover"
"""The field of `BulkAction.wanted` that names the subscription of a recovery."""
STAGE_ENDS = (1, 11)
"""How many notifications a retry in stages has tried after its first and its second stage; then come the rest."""


class BulkVerb(StrEnum):
    RETRY = "retry"
    DISCARD = "discard"


class BulkStatus(StrEnum):
    GATHERING = "gathering"
    """Collecting the notifications."""
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    HALTED = "halted"
    """The same error occurred again."""

    @property
    def has_ended(self) -> bool:
        return self not in (BulkStatus.GATHERING, BulkStatus.RUNNING)


class RowOutcome(StrEnum):
    """The result of the action for one notification."""

    DONE = "done"
    CONFLICT = "conflict"
    """It has changed since it was gathered."""
    GONE = "gone"
    """It was purged or never existed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkAction:
    action_id: str
    verb: BulkVerb
    actor: str
    reason: str
    wanted: dict[str, str | list[str]] | None
    """The filter's fields; None for an action on a selection."""
    as_of: datetime
    """Notifications parked later are left out."""
    in_stages: bool
    created_at: datetime
    status: BulkStatus = BulkStatus.GATHERING
    stage: int = 0
    total: int = 0
    """How many notifications it covers; grows while gathering."""
    done: int = 0
    conflicts: int = 0
    gone: int = 0
    note: str | None = None
    """Why it stopped early."""
    halting_error_key: str | None = None
    """The error group of the error that occurred again and halted it."""
    ended_at: datetime | None = None

    @property
    def recovers(self) -> str | None:
        """The id of the subscription that it recovers; None for any other action."""
        found = (self.wanted or {}).get(RECOVER)
        return found if isinstance(found, str) else None

    @property
    def settled(self) -> int:
        """How many have a result; they are processed in order."""
        return self.done + self.conflicts + self.gone

    @property
    def refused(self) -> int:
        return self.conflicts + self.gone

    @property
    def stage_end(self) -> int:
        """How many may have a result before the stage is judged."""
        is_last = not self.in_stages or self.stage >= len(STAGE_ENDS)
        return self.total if is_last else min(self.total, STAGE_ENDS[self.stage])

    @property
    def left(self) -> int:
        """How many have no result yet."""
        return self.total - self.settled

    def remaining(self, now: datetime) -> timedelta | None:
        """Estimated time left at the average rate so far; None if that cannot be estimated.

        An action in stages waits for the results of its samples, so its rate predicts nothing.
        """
        if self.status is not BulkStatus.RUNNING or self.in_stages or not self.settled:
            return None
        return max(now - self.created_at, timedelta(0)) * (self.left / self.settled)


@dataclass(frozen=True, slots=True)
class Tried:
    """A notification of a stage: its error when it was gathered, and its current status and error."""

    error_key: str | None
    status: Status
    error: str | None


class Judgement(StrEnum):
    """The verdict on a stage."""

    WAIT = "wait"
    GO_ON = "go_on"
    HALT = "halt"


def judge(tried: Iterable[Tried]) -> tuple[Judgement, str | None]:
    """Judge a stage; returns the verdict and the error that occurred again, if any."""
    found = list(tried)
    known = {one.error_key for one in found}
    for one in found:
        if one.error and one.status in (Status.PARKED, Status.RETRYING) and fingerprint_key(one.error) in known:
            return Judgement.HALT, one.error
    is_open = any(not one.status.is_terminal for one in found)
    return (Judgement.WAIT if is_open else Judgement.GO_ON), None


def parked_only(wanted: Filter) -> Filter:
    """Restrict a filter to parked notifications; raises InvalidInput if it asks for others."""
    if wanted.is_stuck:
        raise InvalidInput("bulk.stuck", "bulk actions cover parked notifications, not stuck ones", field="stuck")
    if wanted.is_overdue:
        raise InvalidInput("bulk.overdue", "bulk actions cover parked notifications, not overdue ones", field="overdue")
    if wanted.statuses not in ((), (Status.PARKED,)):
        raise InvalidInput("bulk.status", "bulk actions cover only parked notifications", field="status")
    return replace(wanted, statuses=(Status.PARKED,))
