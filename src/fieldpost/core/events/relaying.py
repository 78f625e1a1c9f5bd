"""The relay's rules: the change of an outbox row by a verdict, and by a result at central.

A claimed row ends in one of three ways:

    Published       central has recorded the event; the row follows it from now on
    NotPublished    central rejected the event, or did not answer: FAILED, counted in `retries`, due by the policy
    GivenBack       central is unreachable: the claim ends and nothing else changes

An unclaimed, unpublished row is PENDING until its first failure and FAILED after it, so the status to return to follows
from `retries`. An unanswered row may be recorded at central; the rows of its order key wait for it. A rejected one is
not, and they pass it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from fieldpost.core.delivery.retry import RetryPolicy
from fieldpost.core.events.outbox import OutboxStatus
from fieldpost.core.events.result import EventState
from fieldpost.core.text import truncate

UNANSWERED = "relay.unanswered"
"""The code of a publish without an answer. Rows of the same order key wait for such a row."""
NO_TEMPLATE = "template.not_found: a matching route has no template"
"""The error of a row that waits for a template at central."""
ERROR_BYTES_MAX = 2000
CHECK_FIRST = timedelta(seconds=60)
CHECK_MAX = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Published:
    """Central has recorded the event."""

    status: OutboxStatus
    check_after: timedelta
    """When to query its result by id, unless it was reported before."""
    error: str | None = None
    """`CODE: message`."""


@dataclass(frozen=True, slots=True)
class NotPublished:
    """Central rejected the event or did not answer."""

    error: str
    """`CODE: message`."""
    wait: timedelta | None
    """When the row is due again; None if the policy allows no further attempt."""


@dataclass(frozen=True, slots=True)
class GivenBack:
    """Central is unreachable; the claim ends and the row is as it was."""


RowChange = Published | NotPublished | GivenBack


@dataclass(frozen=True, slots=True)
class PublishVerdict:
    """Central's verdict on one row: `accepted`, `duplicate`, `rejected` or `later`, or `unanswered` without one."""

    verdict: str
    state: EventState | None = None
    code: str | None = None
    error: str | None = None


def decide_row(verdict: PublishVerdict, retries: int, policy: RetryPolicy, chance: float) -> RowChange:
    """The change of a claimed row. `retries` are its failures so far."""
    match verdict.verdict:
        case "accepted":
            match verdict.state:
                case EventState.SENT:
                    return Published(OutboxStatus.SENT, CHECK_FIRST)
                case EventState.TEMPLATE_NOT_FOUND:
                    return Published(OutboxStatus.TEMPLATE_NOT_FOUND, CHECK_FIRST, NO_TEMPLATE)
                case _:
                    # A notification that was parked at once, too: following finds it, with its error.
                    return Published(OutboxStatus.PROCESSING, CHECK_FIRST)
        case "duplicate":
            # It may have ended long ago, before the relay began to query.
            return Published(OutboxStatus.PROCESSING, timedelta(0))
        case "rejected":
            error = error_text(verdict.code or "event.rejected", verdict.error or "central rejected the event")
            return NotPublished(error, policy.delay(retries + 1, chance))
        case "unanswered":
            error = error_text(UNANSWERED, verdict.error or "central did not answer")
            return NotPublished(error, policy.delay(retries + 1, chance))
        case _:
            return GivenBack()


def row_status(state: EventState, current: OutboxStatus) -> OutboxStatus | None:
    """The status of a published row by the event's state at central; None to publish the row again.

    An event that central does not know was lost with central's database. A purged one ended: a row that was FAILED then
    stays so.
    """
    match state:
        case EventState.SENT:
            return OutboxStatus.SENT
        case EventState.FAILED:
            return OutboxStatus.FAILED
        case EventState.TEMPLATE_NOT_FOUND:
            return OutboxStatus.TEMPLATE_NOT_FOUND
        case EventState.PROCESSING:
            return OutboxStatus.PROCESSING
        case EventState.PURGED:
            return current if current is OutboxStatus.FAILED else OutboxStatus.SENT
        case EventState.UNKNOWN:
            return None


def status_of_unclaimed(retries: int) -> OutboxStatus:
    """The status of an unpublished row that no relay holds."""
    return OutboxStatus.FAILED if retries else OutboxStatus.PENDING


def next_check(age: timedelta) -> timedelta:
    """When to query a followed row by id again, by its time since publishing: after the same time once more."""
    return min(max(age, CHECK_FIRST), CHECK_MAX)


def error_text(code: str, message: str) -> str:
    """The text of `last_error`."""
    return truncate(f"{code}: {message}", ERROR_BYTES_MAX)


def split_by_bytes(sizes: Sequence[int], bytes_max: int, items_max: int) -> list[range]:
    """Consecutive parts of a batch, each within both limits or of a single item."""
    parts: list[range] = []
    begin = total = 0
    for number, size in enumerate(sizes):
        if number > begin and (total + size > bytes_max or number - begin >= items_max):
            parts.append(range(begin, number))
            begin, total = number, 0
        total += size
    if begin < len(sizes):
        parts.append(range(begin, len(sizes)))
    return parts
