"""Results of the events of one source, in sets: the states of events, and their notifications that ended.

A result names each target with the cycle in which it was settled. A retry keeps the targets that were reached, so the
cycle comes from the attempts: it is the cycle of the last attempt that began before the target was settled.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from sqlalchemy import Connection, Integer, Row, Text

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.events import withheld
from fieldpost.central.store.events.withheld import WithheldReason
from fieldpost.core.events.result import EventState, event_state
from fieldpost.core.notification import Status, TargetStatus
from fieldpost.core.search.page_key import PageKey

TARGETS_MAX = 5_000
"""Targets per page, unless its first notification has more."""
FIRST: PageKey = (datetime(1970, 1, 1, tzinfo=UTC), "00000000-0000-0000-0000-000000000000")


@dataclass(frozen=True, slots=True)
class EventResult:
    """The state of one event."""

    event_id: str
    state: EventState


@dataclass(frozen=True, slots=True)
class TargetResult:
    """The result for one target in the cycle in which it was settled."""

    address: str
    status: TargetStatus
    cycle: int
    settled_at: datetime | None
    error: str | None


@dataclass(frozen=True, slots=True)
class EndedNotification:
    """A notification of an event that is delivered, parked or discarded."""

    notification_id: str
    event_id: str
    list_name: str
    type: str
    subject: str
    status: Status
    cycle: int
    ended_at: datetime
    error: str | None
    targets: tuple[TargetResult, ...]


_TYPES: dict[str, Any] = {
    "notification_id": Id,
    "event_id": Id,
    "list_name": Text,
    "type": Text,
    "subject": Text,
    "status": Text,
    "cycle": Integer,
    "terminal_at": Moment,
    "last_error": Text,
}
_ENDED = f"select {', '.join(_TYPES)} from notifications where event_id is not null and terminal_at is not null"
_ended_since = Statement(
    f"""{_ENDED} and source_site_id = :source and (terminal_at, notification_id) > (:at, :id)
    order by terminal_at, notification_id limit :limit""",
    result=_TYPES,
)
_ended_of = Statement(
    f"""{_ENDED} and event_id {{any:ids}} and notification_id > :id order by notification_id limit :limit""",
    lists={"ids": "id"},
    result=_TYPES,
)
_recorded = Statement(
    "select event_id, match_count from events where event_id {any:ids} and source = :source",
    lists={"ids": "id"},
    result={"event_id": Id, "match_count": Integer},
)
_counts = Statement(
    """
    select event_id, status, count(*) as size from notifications
    where event_id {any:ids} group by event_id, status
    """,
    lists={"ids": "id"},
    result={"event_id": Id, "status": Text, "size": Integer},
)
_purged = Statement(
    "select event_id from event_tombstones where event_id {any:ids} and source = :source",
    lists={"ids": "id"},
    result={"event_id": Id},
)
_target_counts = Statement(
    "select notification_id, count(*) as size from targets where notification_id {any:ids} group by notification_id",
    lists={"ids": "id"},
    result={"notification_id": Id, "size": Integer},
)
_targets = Statement(
    """
    select t.notification_id, t.address, t.status, t.error, t.settled_at,
        (select max(a.cycle) from attempts a
         where a.notification_id = t.notification_id and a.started_at <= t.settled_at) as cycle
    from targets t where t.notification_id {any:ids} order by t.notification_id, t.address
    """,
    lists={"ids": "id"},
    result={
        "notification_id": Id,
        "address": Text,
        "status": Text,
        "error": Text,
        "settled_at": Moment,
        "cycle": Integer,
    },
)


def states(conn: Connection, source: str, ids: Collection[str]) -> list[EventResult]:
    """The states of these events, in the given order; those of other sources are unknown."""
    wanted = list(ids)
    if not wanted:
        return []
    recorded = {row.event_id: row.match_count for row in _recorded.run(conn, ids=wanted, source=source)}
    counts: defaultdict[str, dict[Status, int]] = defaultdict(dict)
    if recorded:
        for row in _counts.run(conn, ids=list(recorded)):
            counts[row.event_id][Status(row.status)] = row.size
    reasons = withheld.reasons(conn, recorded)
    found = {
        event_id: event_state(
            counts[event_id],
            matches - reasons.get(event_id, {}).get(WithheldReason.COOLDOWN, 0),
            lacks_template=WithheldReason.NO_TEMPLATE in reasons.get(event_id, {}),
        )
        for event_id, matches in recorded.items()
    }
    if missing := [event_id for event_id in wanted if event_id not in found]:
        found |= {row.event_id: EventState.PURGED for row in _purged.run(conn, ids=missing, source=source)}
    return [EventResult(event_id, found.get(event_id, EventState.UNKNOWN)) for event_id in wanted]


def ended_since(
    conn: Connection, source: str, after: PageKey, limit: int
) -> tuple[list[EndedNotification], PageKey | None]:
    """Notifications of this source's events that ended after a position, oldest first; where the next page begins."""
    return _page(conn, _ended_since.run(conn, source=source, at=after[0], id=after[1], limit=limit + 1), limit)


def ended_of(
    conn: Connection, ids: Collection[str], after: str, limit: int
) -> tuple[list[EndedNotification], PageKey | None]:
    """Ended notifications of these events, by their ids, behind `after`; where the next page begins."""
    if not ids:
        return [], None
    return _page(conn, _ended_of.run(conn, ids=list(ids), id=after, limit=limit + 1), limit)


def _page(conn: Connection, rows: Sequence[Row[Any]], limit: int) -> tuple[list[EndedNotification], PageKey | None]:
    """The first rows with their targets: at most `limit` rows and TARGETS_MAX targets, but at least one row."""
    shown = rows[:limit]
    if not shown:
        return [], None
    sizes = {row.notification_id: row.size for row in _target_counts.run(conn, ids=_ids(shown))}
    totals = accumulate(sizes.get(row.notification_id, 0) for row in shown)
    shown = shown[: max(1, sum(1 for total in totals if total <= TARGETS_MAX))]
    targets: defaultdict[str, list[Row[Any]]] = defaultdict(list)
    for target in _targets.run(conn, ids=_ids(shown)):
        targets[target.notification_id].append(target)
    ended = [_ended(row, targets[row.notification_id]) for row in shown]
    last = shown[-1]
    return ended, (last.terminal_at, last.notification_id) if len(shown) < len(rows) else None


def _ids(rows: Sequence[Row[Any]]) -> list[str]:
    return [row.notification_id for row in rows]


def _ended(row: Row[Any], targets: Sequence[Row[Any]]) -> EndedNotification:
    return EndedNotification(
        notification_id=row.notification_id,
        event_id=row.event_id,
        list_name=row.list_name,
        type=row.type,
        subject=row.subject,
        status=Status(row.status),
        cycle=row.cycle,
        ended_at=row.terminal_at,
        error=row.last_error,
        targets=tuple(
            TargetResult(
                address=target.address,
                status=TargetStatus(target.status),
                cycle=row.cycle if target.status == TargetStatus.DUE else target.cycle or row.cycle,
                settled_at=None if target.status == TargetStatus.DUE else target.settled_at,
                error=target.error,
            )
            for target in targets
        ),
    )
