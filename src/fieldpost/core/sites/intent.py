"""Intents: what an operator wants done at a site, kept at central until the site has done it.

    waiting ──▶ sent ──▶ done       the site answered: the outcome is its own word
       │          └────▶ expired    no answer came in time; it may have been applied, and a late answer still counts
       ├───────────────▶ expired    the site was away for too long: it was never sent
       └───────────────▶ cancelled  by an operator, before it was sent

An intent given while the site is away waits and is shown as waiting. One that was sent and not answered is sent again
on the next connection: the site keeps the ids of what it has applied, together with the outcome and in the same
transaction as the effect, so that however often a command arrives it acts once. What was sent can no longer be
cancelled, since nobody at central knows whether it has been applied.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fieldpost.core.errors import Conflict


class IntentKind(StrEnum):
    """What is to be done at the site."""

    RETRY = "retry"
    """A parked call goes back to the retry queue."""
    DISCARD = "discard"
    """A parked call is given up for good."""
    RESUBMIT_REJECTED = "resubmit_rejected"
    """A notification of the rejected box is forwarded again."""
    DISCARD_REJECTED = "discard_rejected"
    """A notification of the rejected box is given up for good."""
    LIST_PARKED = "list_parked"
    LIST_REJECTED = "list_rejected"
    QUERY_EVENTS = "query_events"
    """A look into the site's event log."""
    RECONCILE = "reconcile"
    """The site's calls are read anew from the beginning; central does this one with the site's answers."""

    @property
    def names_message(self) -> bool:
        """Whether it is about one call or notification."""
        return self in (
            IntentKind.RETRY,
            IntentKind.DISCARD,
            IntentKind.RESUBMIT_REJECTED,
            IntentKind.DISCARD_REJECTED,
        )


class IntentState(StrEnum):
    WAITING = "waiting"
    SENT = "sent"
    DONE = "done"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def is_open(self) -> bool:
        return self in (IntentState.WAITING, IntentState.SENT)


class IntentOutcome(StrEnum):
    APPLIED = "applied"
    NOT_PARKED = "not_parked"
    """There was nothing parked (or rejected) under that id: it had moved on, or never was."""
    SITE_UNREACHABLE = "site_unreachable"
    """The site was not there until the intent expired."""
    OPERATION_FAILED = "operation_failed"
    """The site tried and could not; the detail says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One row of `intents`."""

    intent_id: str
    site: str
    kind: IntentKind
    message_id: str | None
    """The call or notification that it is about, if it is about one."""
    arguments: Mapping[str, str | int]
    reason: str | None
    actor: str
    created_at: datetime
    expires_at: datetime
    state: IntentState = IntentState.WAITING
    outcome: IntentOutcome | None = None
    detail: str | None = None
    answer: Mapping[str, object] | None = None
    """What the site answered to a look."""
    attempts: int = 0
    """How often it was sent."""
    sent_at: datetime | None = None
    done_at: datetime | None = None
    version: int = 1


def check_cancel(intent: Intent) -> None:
    """Raise Conflict unless it can still be cancelled."""
    if intent.state is not IntentState.WAITING:
        why = "it was sent and may have been applied" if intent.state is IntentState.SENT else "it has ended"
        raise Conflict("intent.not_waiting", f"the intent is {intent.state.value} and cannot be cancelled: {why}")


def takes_result(intent: Intent) -> bool:
    """Whether the site's word is still news: of what was sent, the expired included."""
    return intent.state is IntentState.SENT or (intent.state is IntentState.EXPIRED and intent.attempts > 0)


def expiry_detail(attempts: int) -> str:
    """What is told of an intent that expired."""
    if attempts == 0:
        return "the site was away until it expired; it was never sent"
    return "it was sent and the site did not answer until it expired; it may have been applied"
