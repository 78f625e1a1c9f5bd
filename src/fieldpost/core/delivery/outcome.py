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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum

from fieldpost.core.delivery.exchange import Exchange, scrubbed_exchange
from fieldpost.core.delivery.holds import HoldKind
from fieldpost.core.notification import Target, TargetStatus
from fieldpost.core.text import ERROR_BYTES_MAX

NAMED_MAX = 10
"""How many targets an error text names per error; the row's targets have them all."""


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
    exchanges: tuple[Exchange, ...] = ()

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
    exchanges: tuple[Exchange, ...] = ()

    word = "transient_failure"


@dataclass(frozen=True, slots=True)
class PermanentFailure:
    error: str
    targets: tuple[Target, ...] = ()
    reply: str | None = None
    phase: str | None = None
    evidence: Evidence = Evidence.WORKS
    exchanges: tuple[Exchange, ...] = ()
    is_gone: bool = False
    """The receiver asked never to be called again (HTTP 410)."""

    word = "permanent_failure"


@dataclass(frozen=True, slots=True)
class Uncertain:
    error: str
    targets: tuple[Target, ...] = ()
    retry_after: timedelta | None = None
    reply: str | None = None
    phase: str | None = None
    evidence: Evidence = Evidence.NONE
    exchanges: tuple[Exchange, ...] = ()

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
    exchanges: tuple[Exchange, ...] = ()

    word = "held"


Outcome = Delivered | TransientFailure | PermanentFailure | Uncertain | Held

WORDS = (Delivered.word, TransientFailure.word, PermanentFailure.word, Uncertain.word, Held.word)


def fold(targets: tuple[Target, ...], reply: str | None = None, phase: str | None = None) -> Outcome:
    """Combine results per target: transient if any target is due, else permanent if any failed, else delivered."""
    if any(target.status is TargetStatus.DUE for target in targets):
        error = name_errors(targets, TargetStatus.DUE, TargetStatus.FAILED)
        return TransientFailure(error, targets, None, reply, phase)
    if any(target.status is TargetStatus.FAILED for target in targets):
        return PermanentFailure(name_errors(targets, TargetStatus.FAILED), targets, reply, phase)
    return Delivered(targets, reply, phase)


def name_errors(targets: Sequence[Target], *statuses: TargetStatus) -> str:
    """One line with every error of the targets in these statuses, the number of targets and the first ten of each.

    If that is longer than a stored error may be, fewer targets are named: every error and number stays.
    """
    groups: dict[str, list[Target]] = {}
    for target in targets:
        if target.status in statuses:
            # Servers quote the address in their replies; apart from it these are the same reply.
            groups.setdefault((target.error or "").replace(target.address, ""), []).append(target)
    for named_max in (NAMED_MAX, 3, 1):
        line = "; ".join(_name(group, named_max) for group in groups.values())
        if len(line.encode("utf-8", "replace")) <= ERROR_BYTES_MAX:
            break
    return line


def _name(group: Sequence[Target], named_max: int) -> str:
    error, count = group[0].error, len(group)
    named = ", ".join(target.address for target in group[:named_max])
    if count > 1:
        more = f" and {count - named_max} more" if count > named_max else ""
        named = f"{count} targets ({named}{more})"
    return f"{named}: {error}" if error else named


def scrubbed(outcome: Outcome, scrub: Callable[[str], str]) -> Outcome:
    """Apply `scrub` to all texts from the other side, which may repeat a secret."""
    reply = scrub(outcome.reply) if outcome.reply else outcome.reply
    exchanges = tuple(scrubbed_exchange(exchange, scrub) for exchange in outcome.exchanges)
    targets = tuple(replace(t, error=scrub(t.error)) if t.error else t for t in outcome.targets)
    if isinstance(outcome, Delivered):
        return replace(outcome, targets=targets, reply=reply, exchanges=exchanges)
    return replace(outcome, error=scrub(outcome.error), targets=targets, reply=reply, exchanges=exchanges)
