"""A bulk action: one verb on many parked notifications, as a person asked for it, and how far it has come.

Which notifications it is about is fixed when it starts: those that were parked at that moment. It *gathers* them with
the versions they have, then does its verb to each that still has that version. What has changed meanwhile, by another
person or by an earlier part of the same trouble, is a conflict and stays as it is.

A retry may go *in stages*: one, then ten more, then the rest, each stage only once the one before has come out. When
an error comes back that was there before, nothing is mended yet, and the act halts.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from fieldpost.core.errors import InvalidInput
from fieldpost.core.notification import Status
from fieldpost.core.search.fingerprint import fingerprint_key
from fieldpost.core.search.notification_filter import Filter

STAGE_ENDS = (1, 11)
"""How many notifications a retry in stages has tried after its first and its second stage; then come the rest."""


class BulkVerb(StrEnum):
    RETRY = "retry"
    DISCARD = "discard"


class BulkStatus(StrEnum):
    GATHERING = "gathering"
    """It looks for what it is about."""
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    HALTED = "halted"
    """The same error came back."""

    @property
    def has_ended(self) -> bool:
        return self not in (BulkStatus.GATHERING, BulkStatus.RUNNING)


class RowOutcome(StrEnum):
    """What the act came to for one notification."""

    DONE = "done"
    CONFLICT = "conflict"
    """It was no longer as it was seen."""
    GONE = "gone"
    """It was purged, or never was there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkAction:
    action_id: str
    verb: BulkVerb
    actor: str
    reason: str
    wanted: dict[str, str | list[str]] | None
    """The filter's fields; None for an act on a selection."""
    as_of: datetime
    """What parked later is left out."""
    in_stages: bool
    created_at: datetime
    status: BulkStatus = BulkStatus.GATHERING
    stage: int = 0
    total: int = 0
    """How many it is about, so far while it gathers."""
    done: int = 0
    conflicts: int = 0
    gone: int = 0
    note: str | None = None
    """Why it ended before its end."""
    ended_at: datetime | None = None

    @property
    def settled(self) -> int:
        """How many have an outcome; they are worked off in their order."""
        return self.done + self.conflicts + self.gone

    @property
    def refused(self) -> int:
        return self.conflicts + self.gone

    @property
    def stage_end(self) -> int:
        """How many may have an outcome before the stage is judged."""
        is_last = not self.in_stages or self.stage >= len(STAGE_ENDS)
        return self.total if is_last else min(self.total, STAGE_ENDS[self.stage])

    @property
    def left(self) -> int:
        """How many have no outcome."""
        return self.total - self.settled

    def remaining(self, now: datetime) -> timedelta | None:
        """How long it still takes at the pace it has had; None where that says nothing.

        An act in stages waits for what becomes of the few it has tried, so its pace is not its own.
        """
        if self.status is not BulkStatus.RUNNING or self.in_stages or not self.settled:
            return None
        return max(now - self.created_at, timedelta(0)) * (self.left / self.settled)


@dataclass(frozen=True, slots=True)
class Tried:
    """A notification of a stage: which error it had when it was gathered, and how it stands now."""

    error_key: str | None
    status: Status
    error: str | None


class Judgement(StrEnum):
    """Of a stage."""

    WAIT = "wait"
    GO_ON = "go_on"
    HALT = "halt"


def judge(tried: Iterable[Tried]) -> tuple[Judgement, str | None]:
    """What follows from a stage, and the error that came back, if one did."""
    found = list(tried)
    known = {one.error_key for one in found}
    for one in found:
        if one.error and one.status in (Status.PARKED, Status.RETRYING) and fingerprint_key(one.error) in known:
            return Judgement.HALT, one.error
    is_open = any(not one.status.is_terminal for one in found)
    return (Judgement.WAIT if is_open else Judgement.GO_ON), None


def parked_only(wanted: Filter) -> Filter:
    """The filter as a bulk action has it, which is about what is parked; InvalidInput if it asks for anything else."""
    if wanted.is_stuck:
        raise InvalidInput("bulk.stuck", "what is stuck is not parked: a bulk action cannot be about it", field="stuck")
    if wanted.is_overdue:
        raise InvalidInput(
            "bulk.overdue", "what is overdue is not parked: a bulk action cannot be about it", field="overdue"
        )
    if wanted.statuses not in ((), (Status.PARKED,)):
        raise InvalidInput("bulk.status", "a bulk action is about parked notifications only", field="status")
    return replace(wanted, statuses=(Status.PARKED,))
