"""Outcomes of attempts. Adapters return one of these for every external result.

    Delivered          every target of the attempt was reached
    TransientFailure   failed this time; a retry may succeed
    PermanentFailure   this message or this target can never succeed
    Uncertain          the request or the final dot was sent but no reply came: it may have been delivered
    Held               the channel fails, not the message: no attempt is used

If targets had different results, `targets` lists them; `fold` combines them into one outcome.

A provider's "too many requests" is a `Pause`, in the `pauses` of any outcome: it counts neither on the notification nor
on the breaker. `paused` makes the outcome of an attempt that a provider turned away as a whole.

`evidence` says what the attempt showed about its delivery path, independently of the outcome: a 503 is a transient
failure of the message and evidence that the path fails. The breaker reads the evidence, `decide` reads the outcome.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum

from fieldpost.core.delivery.exchange import Exchange, scrubbed_exchange
from fieldpost.core.delivery.holds import HoldKind
from fieldpost.core.frozen import frozen
from fieldpost.core.notification import Target, TargetStatus
from fieldpost.core.text import ERROR_BYTES_MAX

NAMED_MAX = 10
"""How many targets an error text names per error; the row's targets have them all."""


class Evidence(StrEnum):
    """The evidence of an attempt about its delivery path."""

    WORKS = "works"
    FAILS = "fails"
    NONE = "none"


PAUSE_MAX = timedelta(hours=24)
"""A longer pause is shortened to this."""


@frozen
class Pause:
    """A provider asks for no further request for a time, to one target or over the whole channel."""

    wait: timedelta
    reason: str
    """The provider's answer, for people."""
    address: str | None = None
    """The target that pauses; None for the channel."""


@frozen
class TargetPause:
    """A target of a delivery key to which no request is made before `until`."""

    delivery_key: str
    address: str
    until: datetime
    reason: str


@frozen
class Delivered:
    targets: tuple[Target, ...] = ()
    reply: str | None = None
    phase: str | None = None
    evidence: Evidence = Evidence.WORKS
    exchanges: tuple[Exchange, ...] = ()
    pauses: tuple[Pause, ...] = ()

    word = "delivered"
    error = None


@frozen
class TransientFailure:
    error: str
    targets: tuple[Target, ...] = ()
    retry_after: timedelta | None = None
    reply: str | None = None
    phase: str | None = None
    evidence: Evidence = Evidence.WORKS
    exchanges: tuple[Exchange, ...] = ()
    pauses: tuple[Pause, ...] = ()

    word = "transient_failure"


@frozen
class PermanentFailure:
    error: str
    targets: tuple[Target, ...] = ()
    reply: str | None = None
    phase: str | None = None
    evidence: Evidence = Evidence.WORKS
    exchanges: tuple[Exchange, ...] = ()
    pauses: tuple[Pause, ...] = ()
    is_gone: bool = False
    """The receiver asked never to be called again (HTTP 410)."""

    word = "permanent_failure"


@frozen
class Uncertain:
    error: str
    targets: tuple[Target, ...] = ()
    retry_after: timedelta | None = None
    reply: str | None = None
    phase: str | None = None
    evidence: Evidence = Evidence.NONE
    exchanges: tuple[Exchange, ...] = ()
    pauses: tuple[Pause, ...] = ()

    word = "uncertain"


@frozen
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
    pauses: tuple[Pause, ...] = ()

    word = "held"


Outcome = Delivered | TransientFailure | PermanentFailure | Uncertain | Held

WORDS = (Delivered.word, TransientFailure.word, PermanentFailure.word, Uncertain.word, Held.word)


def fold(
    targets: tuple[Target, ...], reply: str | None = None, phase: str | None = None, pauses: tuple[Pause, ...] = ()
) -> Outcome:
    """Combine results per target: transient if any target is due, else permanent if any failed, else delivered.

    If only pauses keep targets due, the outcome is held until the first of them ends.
    """
    due = [target for target in targets if target.status is TargetStatus.DUE]
    if due and _all_paused(due, pauses):
        is_paused_only = len(due) == len(targets)
        return replace(
            paused(*pauses, phase=phase),
            reply=reply,
            evidence=Evidence.NONE if is_paused_only else Evidence.WORKS,
            targets=targets,
        )
    if due:
        error = name_errors(targets, TargetStatus.DUE, TargetStatus.FAILED)
        return TransientFailure(error, targets, None, reply, phase, pauses=pauses)
    if any(target.status is TargetStatus.FAILED for target in targets):
        return PermanentFailure(name_errors(targets, TargetStatus.FAILED), targets, reply, phase, pauses=pauses)
    return Delivered(targets, reply, phase, pauses=pauses)


def paused(*pauses: Pause, phase: str | None = None) -> Held:
    """The outcome of an attempt that the provider turned away with "too many requests"."""
    first = min(pauses, key=lambda pause: pause.wait)
    return Held(
        first.reason,
        phase=phase,
        evidence=Evidence.NONE,
        kind=HoldKind.RATE_LIMIT,
        wait=min(first.wait, PAUSE_MAX),
        pauses=pauses,
    )


def with_paused(outcome: Outcome, tried: Sequence[str], pauses: tuple[Pause, ...]) -> Outcome:
    """The outcome of an attempt to some of the due targets, while these pauses kept the others from it."""
    waiting = tuple(Target(pause.address) for pause in pauses if pause.address is not None)
    return with_others(replace(outcome, pauses=outcome.pauses + pauses), tried, waiting)


def with_others(outcome: Outcome, tried: Sequence[str], others: tuple[Target, ...]) -> Outcome:
    """The outcome of an attempt to some of the due targets, with the results of the others."""
    if isinstance(outcome, Held):
        return replace(outcome, targets=outcome.targets + others)
    named = outcome.targets or tuple(_as_whole(outcome, address) for address in tried)
    if isinstance(outcome, TransientFailure | Uncertain):
        return replace(outcome, targets=named + others)
    folded = fold(named + others, outcome.reply, outcome.phase, outcome.pauses)
    return replace(folded, evidence=outcome.evidence, exchanges=outcome.exchanges)


def _as_whole(outcome: Outcome, address: str) -> Target:
    """The result of a target that the outcome does not name."""
    match outcome:
        case Delivered():
            return Target(address, TargetStatus.DELIVERED)
        case PermanentFailure():
            return Target(address, TargetStatus.FAILED, outcome.error)
        case _:
            return Target(address, error=outcome.error)


def _all_paused(due: Sequence[Target], pauses: Sequence[Pause]) -> bool:
    addresses = {pause.address for pause in pauses}
    return bool(pauses) and (None in addresses or all(target.address in addresses for target in due))


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
    if isinstance(outcome, Delivered) and not (outcome.reply or outcome.targets or outcome.exchanges or outcome.pauses):
        return outcome
    reply = scrub(outcome.reply) if outcome.reply else outcome.reply
    exchanges = tuple(scrubbed_exchange(exchange, scrub) for exchange in outcome.exchanges)
    targets = tuple(replace(t, error=scrub(t.error)) if t.error else t for t in outcome.targets)
    pauses = tuple(replace(pause, reason=scrub(pause.reason)) for pause in outcome.pauses)
    if isinstance(outcome, Delivered):
        before = outcome.targets, outcome.reply, outcome.exchanges, outcome.pauses
        if (targets, reply, exchanges, pauses) == before:
            return outcome  # as most are
        return replace(outcome, targets=targets, reply=reply, exchanges=exchanges, pauses=pauses)
    return replace(
        outcome, error=scrub(outcome.error), targets=targets, reply=reply, exchanges=exchanges, pauses=pauses
    )
