"""Explains why a notification is not delivered yet, what happens next and when.

If an operator asks a question that these sentences do not answer, add the answer here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fieldpost.core.delivery.breaker import Breaker, BreakerState
from fieldpost.core.delivery.exchange import Exchange
from fieldpost.core.delivery.holds import HoldKind, kind_of
from fieldpost.core.notification import Notification, Status, TargetStatus
from fieldpost.core.quantities import plural
from fieldpost.core.times import to_text


@dataclass(frozen=True, slots=True)
class ClaimState:
    """The claim on a notification, and how many of its attempts ended because their node stopped."""

    owner: str | None
    lease_until: datetime | None
    orphan_count: int = 0


def explain(
    n: Notification,
    claim: ClaimState,
    breaker: Breaker | None,
    now: datetime,
    auth_expires_at: datetime | None = None,
    *,
    turn_at: datetime | None = None,
) -> str:
    """Explain the state of a notification. `breaker` is the breaker that holds it, if it is held; `auth_expires_at` is
    the end of the token that its receiver gave us, `turn_at` the time of its turn if it waits for a rate."""
    sentence = _explain(n, claim, breaker, now, turn_at)
    if auth_expires_at is None or n.status in (Status.DELIVERED, Status.DISCARDED):
        return sentence
    if auth_expires_at > now:
        return f"{sentence} The token that is sent to the receiver expires at {_at(auth_expires_at)}."
    return (
        f"{sentence} The token that is sent to the receiver expired at {_at(auth_expires_at)}, so the receiver rejects"
        " it: set the auth of the subscription again."
    )


def _explain(
    n: Notification, claim: ClaimState, breaker: Breaker | None, now: datetime, turn_at: datetime | None
) -> str:
    match n.status:
        case Status.DELIVERED:
            return f"It was delivered at {_at(n.delivered_at)} to {plural(len(n.targets), 'target')}."
        case Status.DISCARDED:
            return f"An operator discarded it at {_at(n.terminal_at)}; it will not be delivered."
        case Status.PARKED:
            return (
                f"It was parked at {_at(n.terminal_at)}: {n.last_error}{_reached(n)}."
                " It stays parked until an operator retries or discards it."
            )
        case Status.PENDING | Status.RETRYING:
            return _explain_live(n, claim, breaker, now, turn_at)


def parts(sentence: str) -> list[str | datetime]:
    """Split a sentence into text and times, so that a page can show the times in the reader's time zone."""
    pieces: list[str | datetime] = []
    end = 0
    for found in _MOMENT.finditer(sentence):
        try:
            moment = datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
        except ValueError:
            continue  # digits in an error text that are not a valid time
        pieces += [sentence[end : found.start()], moment]
        end = found.end()
    return [piece for piece in (*pieces, sentence[end:]) if piece != ""]


def next_attempt(
    n: Notification, breaker: Breaker | None, now: datetime, turn_at: datetime | None = None
) -> datetime | None:
    """When the next attempt is possible, as `explain` states it; None if as soon as a node has a free slot."""
    due_at = n.due_at
    if n.held_by is not None and kind_of(n.held_by).is_queue:
        due_at = turn_at
    elif n.held_by is not None and not kind_of(n.held_by).is_timed:
        match breaker:
            case Breaker(state=BreakerState.OPEN):
                due_at = breaker.open_until
            case Breaker(state=BreakerState.HALF_OPEN):
                due_at = breaker.probe_until
            case None | Breaker(failures=0):
                due_at = None
            case _:  # it counts failures: the hold is short
                pass
    return due_at if due_at is not None and due_at > now else None


def explain_attempt(
    outcome: str | None, error: str | None, duration_ms: int | None, exchanges: Sequence[Exchange] = ()
) -> str:
    """Explain how an attempt ended and what that means for the next one."""
    tries = max((len(exchange.tries) for exchange in exchanges), default=0)
    facts = [f"{tries} tries"] if tries > 1 else []
    facts += [_duration(duration_ms)] if duration_ms is not None else []
    took = f" ({', '.join(facts)})" if facts else ""
    reason = f"{error[:1].upper()}{error[1:]}" if error else "It failed"
    match outcome:
        case None:
            return "The attempt is in progress."
        case "delivered":
            statuses = {str(exchange.status) for exchange in exchanges if exchange.status is not None}
            return f"The receiver answered {' and '.join(sorted(statuses))}{took}." if statuses else f"Delivered{took}."
        case "permanent_failure":
            return f"{reason}{took}. It is not repeated."
        case "uncertain":
            return f"{reason}{took}. The receiver may have it already; it is sent again under the same id."
        case "held":
            return f"{reason}{took}. This is not counted as an attempt."
        case "released":
            return "The node stopped before the request was sent. This is not counted as an attempt."
        case "abandoned" | "crashed":
            return f"{reason}. The receiver may have it already; it is sent again under the same id."
        case _:
            return f"{reason}{took}."


def _duration(ms: int) -> str:
    return f"{ms} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


_MOMENT = re.compile(r"\b(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC\b", re.ASCII)
"""The format of `_at`."""


def _explain_live(
    n: Notification, claim: ClaimState, breaker: Breaker | None, now: datetime, turn_at: datetime | None
) -> str:
    if claim.lease_until is not None and claim.lease_until > now:
        return (
            f"Node {claim.owner} is attempting delivery now. Its claim is valid until {_at(claim.lease_until)}"
            " and is renewed while the attempt runs."
        )
    if n.held_by is not None:
        return _explain_held(n, breaker, now, turn_at)
    if claim.owner is not None:
        return _explain_orphan(claim)
    due_at = n.due_at or now
    if n.status is Status.RETRYING and due_at > now:
        error = f"{n.last_error}{_reached(n)}. Next attempt at {_at(due_at)}."
        if not n.retry_count:
            return f"The last attempt reached only some of the targets: {error}"
        return f"{plural(n.retry_count, 'attempt')} in this cycle failed; last error: {error}"
    which = "The first attempt" if n.last_attempt_at is None else "The next attempt"
    if due_at > now:
        return f"{which} is due at {_at(due_at)}."
    if claim.orphan_count >= 2:
        return f"{which} has been due since {_at(due_at)}. Two nodes stopped during earlier attempts, so {_NEXT_ALONE}."
    return (
        f"{which} has been due since {_at(due_at)}. It starts in the next sweep that has a free slot for"
        f" {n.delivery_key}; the number of concurrent deliveries is limited."
    )


_NEXT_ALONE = "the next free node attempts it while no other attempt runs there"


def _explain_orphan(claim: ClaimState) -> str:
    """Explain an expired claim. The orphan is counted only when a node claims the notification again."""
    match claim.orphan_count:
        case 0:
            return (
                f"Node {claim.owner} claimed it and stopped responding; the claim expired at"
                f" {_at(claim.lease_until)}. The next sweep of any node takes it."
            )
        case 1:
            return f"Node {claim.owner} stopped during its attempt, as another node did before, so {_NEXT_ALONE}."
        case _:
            return (
                f"Node {claim.owner} stopped during its attempt although no other attempt ran there, as two nodes"
                f" did before. After a wait {_NEXT_ALONE}; a crash of the process in that attempt parks it."
            )


_HELD_FOR_A_TIME = {
    HoldKind.RATE_LIMIT: "Its delivery path accepts no more calls for now.",
    HoldKind.OUR_SIDE: "Central cannot make the call at present.",
    HoldKind.RECEIPT: "Its provider has accepted it.",
}


def _explain_held(n: Notification, breaker: Breaker | None, now: datetime, turn_at: datetime | None) -> str:
    if (kind := kind_of(n.held_by or "")) is HoldKind.PAUSE:
        return f"{n.held_reason}. It is held without using an attempt until the subscription is active."
    if kind.is_queue:
        first = " Critical notifications go first." if kind is HoldKind.RATE else ""
        when = f"Its turn comes at about {_at(turn_at)}" if turn_at and turn_at > now else "Its turn comes now"
        return f"It waits for the rate of its list or channel without using an attempt. {when}.{first}"
    if kind.is_timed:
        due_at = n.due_at or now
        end = f"until {_at(due_at)}" if due_at > now else "until the next sweep"
        return f"{_HELD_FOR_A_TIME[kind]} It is held {end} without using an attempt: {n.held_reason}."
    held = f"It is held by the breaker of {n.held_by}: {n.held_reason}. Waiting uses up no attempts."
    match breaker:
        case Breaker(state=BreakerState.OPEN, open_until=until, failures=failures):
            when = "is due now" if until is not None and until <= now else f"is at {_at(until)}"
            return f"{held} The breaker is open after {plural(failures, 'failure')}; the next probe {when}."
        case Breaker(state=BreakerState.HALF_OPEN, probe_owner=owner, probe_until=until):
            if until is not None and until <= now:
                return f"{held} Node {owner} stopped responding during its probe; another probe is due now."
            return f"{held} Node {owner} is probing the channel now; if that succeeds, held notifications are released."
        case Breaker(failures=failures) if failures > 0:
            due_at = n.due_at or now
            return f"{held} Next attempt {f'at {_at(due_at)}' if due_at > now else 'in the next sweep'}."
        case _:
            return f"{held} The breaker is closed again; each sweep releases a batch of held notifications."


def _reached(n: Notification) -> str:
    reached = sum(t.status is TargetStatus.DELIVERED for t in n.targets)
    return f" (delivered to {reached} of {len(n.targets)} targets)" if reached else ""


def _at(moment: datetime | None) -> str:
    """A time to the second."""
    return "an unknown time" if moment is None else to_text(moment)[:19].replace("T", " ") + " UTC"
