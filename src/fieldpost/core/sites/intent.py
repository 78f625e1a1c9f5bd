"""Intents: requests of operators to a site, stored at central until the site has carried them out.

    waiting ──▶ sent ──▶ done       the site answered with an outcome
       │          └────▶ expired    no answer in time; it may have been applied, and a late answer still counts
       ├───────────────▶ expired    the site was offline for too long: never sent
       └───────────────▶ cancelled  by an operator, before it was sent

An intent for an offline site waits and is displayed as waiting. One that was sent and not answered is sent again on the
next connection. The site stores the ids of applied intents with their outcome, in the transaction of the effect, so a
command that arrives several times is applied once. A sent intent cannot be cancelled, because central does not know
whether it was applied.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fieldpost.core.errors import Conflict


class IntentKind(StrEnum):
    """The kinds of requests."""

    RETRY = "retry"
    """Put a parked call back into the retry queue."""
    DISCARD = "discard"
    """Discard a parked call."""
    RESUBMIT_REJECTED = "resubmit_rejected"
    """Forward a notification of the rejected box again."""
    DISCARD_REJECTED = "discard_rejected"
    """Discard a notification of the rejected box."""
    LIST_PARKED = "list_parked"
    LIST_REJECTED = "list_rejected"
    QUERY_EVENTS = "query_events"
    """Query the site's event log."""
    RECONCILE = "reconcile"
    """Read all calls of the site again from the beginning; central does this itself."""

    @property
    def names_message(self) -> bool:
        """Whether it concerns one call or notification."""
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
    """No call with that id was parked, or no notification rejected."""
    SITE_UNREACHABLE = "site_unreachable"
    """The site was offline until the intent expired."""
    OPERATION_FAILED = "operation_failed"
    """The site failed to apply it; the detail has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One row of `intents`."""

    intent_id: str
    site: str
    kind: IntentKind
    message_id: str | None
    """The call or notification concerned, if there is one."""
    arguments: Mapping[str, str | int]
    reason: str | None
    actor: str
    created_at: datetime
    expires_at: datetime
    state: IntentState = IntentState.WAITING
    outcome: IntentOutcome | None = None
    detail: str | None = None
    answer: Mapping[str, object] | None = None
    """The site's answer to a query."""
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
    """Whether a result of the site still counts: for sent intents, including expired ones."""
    return intent.state is IntentState.SENT or (intent.state is IntentState.EXPIRED and intent.attempts > 0)


def expiry_detail(attempts: int) -> str:
    """The explanation for an expired intent."""
    if attempts == 0:
        return "the site was offline until the request expired; it was never sent"
    return "the request was sent, but the site did not answer before it expired; it may have been applied"
