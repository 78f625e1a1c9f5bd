"""Outcomes of attempts. Adapters return one of these for every external result.

    Delivered          every target of the attempt was reached
    TransientFailure   failed this time; a retry may succeed
    PermanentFailure   this message or this target can never succeed
    Uncertain          the request or the final dot was sent but no reply came: it may have been delivered
    Held               the channel fails, not the message: no attempt is used

If targets had different results, `targets` lists them; `fold` combines them into one outcome.

`evidence` says what the attempt showed about its delivery path, independently of the outcome: a 503 is a transient
failure of the message and evidence that the path fails. The breaker reads the evidence, `decide` reads the outcome.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum

from fieldpost.core.delivery.holds import HoldKind
from fieldpost.core.notification import Target, TargetStatus


class Evidence(StrEnum):
    """What an attempt showed about its delivery path."""

    WORKS = "works"
    FAILS = "fails"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Delivered:
    targets: tuple[Target, ...] = ()
    reply: str | None = None
    phase: str | None = None
    evidence: Evidence = Evidence.WORKS

    word = "delivered"
    error = None


@dataclass(frozen=True, slots=True)
class TransientFailure:
    error: str
    targets: tuple[Target, ...] = ()
    retry_after: timedelta | None = None
    reply: str | None = None
    phase: str | None = None
    evidence: Evidence = Evidence.WORKS

    word = "transient_failure"


@dataclass(frozen=True, slots=True)
class PermanentFailure:
    error: str
    targets: tuple[Target, ...] = ()
    reply: str | None = None
    phase: str | None = None
    evidence: Evidence = Evidence.WORKS

    word = "permanent_failure"


@dataclass(frozen=True, slots=True)
class Uncertain:
    error: str
    targets: tuple[Target, ...] = ()
    retry_after: timedelta | None = None
    reply: str | None = None
    phase: str | None = None
    evidence: Evidence = Evidence.NONE

    word = "uncertain"


@dataclass(frozen=True, slots=True)
class Held:
    error: str
    reply: str | None = None
    phase: str | None = None
    evidence: Evidence = Evidence.FAILS
    kind: HoldKind = HoldKind.BREAKER
    wait: timedelta | None = None
    """How long a hold without a breaker lasts; None for the default of its kind."""
    targets: tuple[Target, ...] = ()
    """The results per target, if some were delivered or failed before the channel did."""

    word = "held"


Outcome = Delivered | TransientFailure | PermanentFailure | Uncertain | Held

WORDS = (Delivered.word, TransientFailure.word, PermanentFailure.word, Uncertain.word, Held.word)


def fold(targets: tuple[Target, ...], reply: str | None = None, phase: str | None = None) -> Outcome:
    """Combine results per target: transient if any target is due, else permanent if any failed, else delivered."""
    if any(target.status is TargetStatus.DUE for target in targets):
        return TransientFailure(name_errors(targets, TargetStatus.DUE), targets, None, reply, phase)
    if any(target.status is TargetStatus.FAILED for target in targets):
        return PermanentFailure(name_errors(targets, TargetStatus.FAILED), targets, reply, phase)
    return Delivered(targets, reply, phase)


def name_errors(targets: tuple[Target, ...], status: TargetStatus) -> str:
    """One line with the targets in this status and their errors; at most ten are named."""
    named = [f"{t.address}: {t.error}" if t.error else t.address for t in targets if t.status is status]
    rest = f" and {len(named) - 10} more" if len(named) > 10 else ""
    return "; ".join(named[:10]) + rest


def scrubbed(outcome: Outcome, scrub: Callable[[str], str]) -> Outcome:
    """Apply `scrub` to all texts from the other side, which may repeat a secret."""
    reply = scrub(outcome.reply) if outcome.reply else outcome.reply
    targets = tuple(replace(t, error=scrub(t.error)) if t.error else t for t in outcome.targets)
    if isinstance(outcome, Delivered):
        return replace(outcome, targets=targets, reply=reply)
    return replace(outcome, error=scrub(outcome.error), targets=targets, reply=reply)
