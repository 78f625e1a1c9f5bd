"""Lists of lists: a submission to one is a whole, and each list that it names gets a part.

A part is an ordinary notification. The whole is its id, its digest and its parts; it has no state. Everything that is
asked of it is folded from the parts, as the state of a notification is folded from its targets:

    a part is pending or retrying      the whole is retrying if one is, else pending
    else a part is parked              parked
    else a part is discarded           discarded
    else                               delivered

`folded` returns the whole as a notification whose targets are the lists of its parts, so that every surface shows it
the way it shows a notification.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from fieldpost.core.errors import InvalidInput
from fieldpost.core.ids import NotificationId, derived_id
from fieldpost.core.lists import LISTS_TYPE, NotificationList
from fieldpost.core.notification import LIVE, Notification, Provenance, Status, Target, TargetStatus, list_key
from fieldpost.core.quantities import plural
from fieldpost.core.text import check_list_name, truncate

MEMBERS_MAX = 50
NAMED_MAX = 5
"""How many parts a sentence about a whole names."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A submission to a list of lists."""

    whole_id: NotificationId
    list_name: str
    site: str
    created_at: datetime
    purged: Sequence[Status] = field(default=())
    """The last statuses of parts whose rows are purged."""


def part_id(whole_id: str, list_name: str) -> NotificationId:
    """The id of the part for a list; the same for every copy of a submission."""
    return NotificationId(derived_id("part", whole_id, list_name))


def check_members(name: str, members: Iterable[str], places: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of the lists that a list of lists names, or InvalidInput naming the place of the first error."""
    checked: list[str] = []
    for number, member in enumerate(members):
        place = places[number] if number < len(places) else f"targets[{number}]"
        if number >= MEMBERS_MAX:
            raise _invalid("list.too_many", f"a list of lists names at most {MEMBERS_MAX} lists", place)
        try:
            check_list_name(member)
        except InvalidInput as error:
            raise _invalid(error.code, error.message, place) from None
        if member == name:
            raise _invalid("list.nested", f"list {name!r} must not name itself", place)
        if member in checked:
            raise _invalid("list.twice", f"list {member!r} is named twice", place)
        checked.append(member)
    if not checked:
        raise InvalidInput("list.empty", "a list of lists must name at least one list", field="targets")
    return tuple(checked)


def check_depth(
    wanted: NotificationList, type_of: Callable[[str], str | None], users: Collection[str], places: Sequence[str] = ()
) -> None:
    """Raise InvalidInput unless all members exist and none is a list of lists. `users` are the lists of lists that name
    the wanted one."""
    if wanted.type != LISTS_TYPE:
        return
    for number, member in enumerate(wanted.targets):
        place = places[number] if number < len(places) else f"targets[{number}]"
        found = type_of(member)
        if found is None:
            raise _invalid("list.unknown", f"list {member!r} does not exist", place)
        if found == LISTS_TYPE:
            raise _invalid("list.nested", f"list {member!r} names other lists itself; one level is possible", place)
    if users:
        raise InvalidInput(
            "list.nested",
            f"list {wanted.name!r} is named by list {min(users)!r}, so it cannot name other lists",
            field="type",
        )


def _invalid(code: str, message: str, place: str) -> InvalidInput:
    return InvalidInput(code, f"{place}: {message}", field=place)


def folded_status(statuses: Collection[Status]) -> Status:
    for status in (Status.RETRYING, Status.PENDING, Status.PARKED, Status.DISCARDED):
        if status in statuses:
            return status
    return Status.DELIVERED


def folded(whole: Whole, parts: Sequence[Notification]) -> Notification:
    """The whole as a notification. Its version is the sum of its parts' versions, so that any change shows."""
    first = parts[0]
    status = folded_status([*(part.status for part in parts), *whole.purged])
    live = [part for part in parts if part.status in LIVE]
    return Notification(
        notification_id=whole.whole_id,
        type=LISTS_TYPE,
        list_name=whole.list_name,
        subject=first.subject,
        body=first.body,
        provenance=Provenance(
            whole.site,
            first.provenance.instance,
            first.provenance.script,
            first.provenance.execution_id,
            first.provenance.parent_execution_id,
        ),
        status=status,
        delivery_key=list_key(whole.list_name),
        created_at=whole.created_at,
        due_at=min((part.due_at for part in live if part.due_at), default=None),
        cycle_started_at=min(part.cycle_started_at for part in parts),
        cycle=max(part.cycle for part in parts),
        version=sum(part.version for part in parts),
        retry_count=max(part.retry_count for part in parts),
        last_error=_error_of(parts),
        last_attempt_at=max((part.last_attempt_at for part in parts if part.last_attempt_at), default=None),
        next_attempt_at=min((part.next_attempt_at for part in live if part.next_attempt_at), default=None),
        delivered_at=_last(part.delivered_at for part in parts) if status is Status.DELIVERED else None,
        terminal_at=None if live else _last(part.terminal_at for part in parts),
        site_enqueued_at=first.site_enqueued_at,
        site_enqueued_text=first.site_enqueued_text,
        event_id=first.event_id,
        severity=first.severity,
        incident=first.incident,
        is_cleared=first.is_cleared,
        targets=tuple(_target(part) for part in parts),
    )


def explain_whole(whole: Whole, parts: Sequence[tuple[Notification, str]]) -> str:
    """Explain the state of a whole by its undelivered parts; each part comes with its own explanation."""
    count = len(parts) + len(whole.purged)
    delivered = sum(part.status is Status.DELIVERED for part, _ in parts) + list(whole.purged).count(Status.DELIVERED)
    said = f"{delivered} of {count} parts {'is' if delivered == 1 else 'are'} delivered."
    left = [(part, why) for part, why in parts if part.status is not Status.DELIVERED]
    sentences = [f"List {part.list_name!r}: {why}" for part, why in left[:NAMED_MAX]]
    more = [f"Also not delivered: {plural(len(left) - NAMED_MAX, 'more part')}."] if len(left) > NAMED_MAX else []
    gone = [f"The rows of {plural(len(whole.purged), 'part')} are purged."] if whole.purged else []
    return " ".join([said, *sentences, *more, *gone])


_TARGET_STATUS = {
    Status.PENDING: TargetStatus.DUE,
    Status.RETRYING: TargetStatus.DUE,
    Status.DELIVERED: TargetStatus.DELIVERED,
    Status.PARKED: TargetStatus.FAILED,
    Status.DISCARDED: TargetStatus.FAILED,
}


def _target(part: Notification) -> Target:
    error = part.held_reason or part.last_error
    if part.status is Status.DISCARDED:
        error = "discarded by an operator"
    return Target(part.list_name, _TARGET_STATUS[part.status], None if part.status is Status.DELIVERED else error)


def _error_of(parts: Sequence[Notification]) -> str | None:
    """The errors of the undelivered parts, each with its list."""
    wrong = [(target.address, target.error) for target in map(_target, parts) if target.error]
    if not wrong:
        return None
    named = "; ".join(f"list {name!r}: {error}" for name, error in wrong[:NAMED_MAX])
    return truncate(f"{named}; and {len(wrong) - NAMED_MAX} more" if len(wrong) > NAMED_MAX else named)


def _last(moments: Iterable[datetime | None]) -> datetime | None:
    return max((at for at in moments if at is not None), default=None)
