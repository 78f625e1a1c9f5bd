"""Why has it not been delivered yet? One true sentence for any notification, and what happens next and when.

If an operator ever asks and the answer is not here, this is the file to change.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from fieldpost.core.breaker import Breaker, BreakerState
from fieldpost.core.notification import Notification, Status, TargetStatus
from fieldpost.core.times import to_text


@dataclass(frozen=True, slots=True)
class ClaimState:
    """Who holds the row, and how often its attempts ended with their node."""

    owner: str | None
    lease_until: datetime | None
    orphan_count: int = 0


def explain(n: Notification, claim: ClaimState, breaker: Breaker | None, now: datetime) -> str:
    """The sentence. `breaker` is the one the row is held by, if it is held."""
    match n.status:
        case Status.DELIVERED:
            return f"It was delivered at {_at(n.delivered_at)} to {_count(len(n.targets), 'target')}."
        case Status.DISCARDED:
            return f"An operator discarded it at {_at(n.terminal_at)}; it will not be delivered."
        case Status.PARKED:
            return f"It was parked at {_at(n.terminal_at)}: {n.last_error}{_reached(n)}. {_WAITS_FOR_OPERATOR}"
        case Status.PENDING | Status.RETRYING:
            return _explain_live(n, claim, breaker, now)


def parts(sentence: str) -> list[str | datetime]:
    """The sentence with its moments as such, for those who show each reader his own clock."""
    pieces: list[str | datetime] = []
    end = 0
    for found in _MOMENT.finditer(sentence):
        try:
            moment = datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
        except ValueError:
            continue  # digits in the words of an error, which are no time
        pieces += [sentence[end : found.start()], moment]
        end = found.end()
    return [piece for piece in (*pieces, sentence[end:]) if piece != ""]


_MOMENT = re.compile(r"\b(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC\b", re.ASCII)
"""As `_at` writes it."""

_WAITS_FOR_OPERATOR = "It waits for an operator to retry or discard it."


def _explain_live(n: Notification, claim: ClaimState, breaker: Breaker | None, now: datetime) -> str:
    if claim.lease_until is not None and claim.lease_until > now:
        return (
            f"Node {claim.owner} is attempting it now; its claim lasts until {_at(claim.lease_until)}"
            " and is renewed while the attempt runs."
        )
    if n.held_by is not None:
        return _explain_held(n, breaker, now)
    if claim.owner is not None:
        return _explain_orphan(claim)
    due_at = n.due_at or now
    if n.status is Status.RETRYING and due_at > now:
        failures = _count(n.retry_count, "attempt")
        error = f"{n.last_error}{_reached(n)}"
        return f"{failures} of this cycle failed, the last with: {error}. Next attempt at {_at(due_at)}."
    which = "Its first attempt" if n.last_attempt_at is None else "Its next attempt"
    if due_at > now:
        return f"{which} is due at {_at(due_at)}."
    if claim.orphan_count >= 2:
        return f"{which} has been due since {_at(due_at)}; {_NEXT_ALONE}, since two attempts ended with their node."
    return (
        f"{which} has been due since {_at(due_at)}; it is taken by the next sweep with a free slot"
        f" (only so many go to {n.delivery_key} at a time)."
    )


_NEXT_ALONE = "the next free node attempts it with nothing beside it"


def _explain_orphan(claim: ClaimState) -> str:
    """The lease ran out and nobody has taken the row since; its orphan is counted when somebody does."""
    match claim.orphan_count:
        case 0:
            return (
                f"Node {claim.owner} took it and was not heard of again, so its claim ran out at"
                f" {_at(claim.lease_until)}; the next sweep of any node takes it up."
            )
        case 1:
            return f"Its attempt on node {claim.owner} ended with that node, not for the first time; {_NEXT_ALONE}."
        case _:
            return (
                f"Its attempt on node {claim.owner}, with nothing beside it, ended with that node as those before;"
                " the next sweep of any node parks it."
            )


def _explain_held(n: Notification, breaker: Breaker | None, now: datetime) -> str:
    held = f"It is held behind {n.held_by}, nothing is counted against it: {n.held_reason}."
    match breaker:
        case Breaker(state=BreakerState.OPEN, open_until=until, failures=failures):
            verb = "is due now" if until is not None and until <= now else f"follows at {_at(until)}"
            return f"{held} The breaker is open after {_count(failures, 'failure')}; one probe {verb}."
        case Breaker(state=BreakerState.HALF_OPEN, probe_owner=owner, probe_until=until):
            if until is not None and until <= now:
                return (
                    f"{held} Node {owner} was probing the channel and was not heard of again; another probe is due now."
                )
            return f"{held} Node {owner} is probing the channel now; if that works, all held rows come free."
        case Breaker(failures=failures) if failures > 0:
            due_at = n.due_at or now
            when = f"at {_at(due_at)}" if due_at > now else "by the next sweep"
            return f"{held} It is attempted again {when}."
        case _:
            return f"{held} The breaker has closed; held rows come free in batches, sweep by sweep."


def _reached(n: Notification) -> str:
    """Whom it has reached all the same, where it has several targets."""
    reached = sum(t.status is TargetStatus.DELIVERED for t in n.targets)
    return f" ({reached} of {len(n.targets)} targets have it)" if reached else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _at(moment: datetime | None) -> str:
    """To the second: who reads this reads a clock on a wall."""
    return "an unknown time" if moment is None else to_text(moment)[:19].replace("T", " ") + " UTC"
