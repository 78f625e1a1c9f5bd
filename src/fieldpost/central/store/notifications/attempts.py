"""Ending an attempt: the row, its targets, the attempt and the audit entries, in one transaction.

Every write proves its right: a row changes only under the token it was claimed with. What comes back too late, because
another node has taken the row meanwhile, is audited as late and changes nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Boolean, Connection, Integer, Row, Text

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.statement import ParameterKind, Statement
from fieldpost.central.store.notifications import audit
from fieldpost.core.audit import SYSTEM, AuditKind, AuditStatus
from fieldpost.core.ids import NotificationId
from fieldpost.core.lifecycle import Transition
from fieldpost.core.notification import Status

ClaimKey = tuple[str, int]
"""An id with the token it was claimed under: a node may have an older claim of the same row in its hands still."""


@dataclass(frozen=True, slots=True)
class Finished:
    """An attempt with its outcome and the transition decided from it, to be applied under its token."""

    notification_id: NotificationId
    token: int
    transition: Transition
    outcome: str
    error: str | None
    phase: str | None
    reply: str | None
    duration_ms: int
    finished_at: datetime


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One row of `attempts`, for those who look; no outcome means that it runs, or that its node died."""

    token: int
    cycle: int
    node_id: str
    is_lone: bool
    started_at: datetime
    finished_at: datetime | None
    outcome: str | None
    phase: str | None
    reply: str | None
    error: str | None
    duration_ms: int | None


_CLAIM: Mapping[str, ParameterKind] = {"notification_id": "id", "claim_token": "int"}
_CLAIM_TYPES = {"notification_id": Id, "claim_token": BigInteger}
_TRANSITION: Mapping[str, ParameterKind] = {
    "status": "text",
    "retry_count": "int",
    "last_error": "text",
    "last_attempt_at": "moment",
    "next_attempt_at": "moment",
    "due_at": "moment",
    "delivered_at": "moment",
    "terminal_at": "moment",
    "held_by": "text",
    "held_reason": "text",
}
_END: Mapping[str, ParameterKind] = {
    "finished_at": "moment",
    "outcome": "text",
    "phase": "text",
    "reply": "text",
    "error": "text",
    "duration_ms": "int",
}
_SET_FREE = "version = notifications.version + 1, orphan_count = 0, claim_owner = null, lease_until = null"
_SET_ROW = ", ".join(f"{name} = u.{name}" for name in _TRANSITION) + f", {_SET_FREE}"
_SET_END = ", ".join(f"{name} = u.{name}" for name in _END)
# The right to write: nobody has taken the row since.
_IS_MINE = """
    notifications.notification_id = u.notification_id and notifications.claim_token = u.claim_token
    and notifications.claim_owner = :owner
"""
_IS_ITS_ATTEMPT = """
    attempts.notification_id = u.notification_id and attempts.claim_token = u.claim_token
    and attempts.finished_at is null
"""


def _writing(rows: Mapping[str, ParameterKind], set_row: str, set_end: str, told: str) -> Statement:
    """Rows, attempts, targets and audit entries in one statement; `told` are the columns of `u` that the audit tells.

    It says how many rows and how many attempts it changed, and which only where these are not all.
    """
    return Statement(
        f"""
        with u as materialized (select * from {{rows}}),
        mine as (
            update notifications set {set_row}, {_SET_FREE} from u where {_IS_MINE}
            returning u.notification_id, u.claim_token, list_name, source_site_id, source_instance_id, source_script,
                origin_execution_id, origin_parent_execution_id, {told}
        ),
        ended as (
            update attempts set {set_end} from u where {_IS_ITS_ATTEMPT}
            returning attempts.notification_id, attempts.claim_token
        ),
        settled as (
            update targets set status = 'delivered', error = null, settled_at = mine.finished_at from mine
            where targets.notification_id = mine.notification_id and mine.status = 'delivered'
                and targets.status = 'due'
        ),
        entries as (
            select event_id as id, 'attempted' as entry_status, error as entry_error, duration_ms as entry_ms,
                reply as entry_reply, mine.*
            from mine
            union all
            select terminal_id, status, terminal_error, null, null, mine.* from mine where terminal_id is not null
        ),
        audited as (
            insert into audit (event_id, occurred_at, ingested_at, correlation_id, execution_id, parent_execution_id,
                channel, kind, status, source_site_id, source_node, source_instance_id, source_script, actor, target,
                duration_ms, error_message, response_summary)
            select id, finished_at, finished_at, notification_id, origin_execution_id, origin_parent_execution_id,
                'notification', 'notify_deliver', entry_status, source_site_id, :owner, source_instance_id,
                source_script, :actor, list_name, entry_ms, entry_error, entry_reply
            from entries
        )
        select cast(null as uuid) as notification_id, count(*) as claim_token, true as is_mine from mine
        union all
        select null, count(*), false from ended
        union all
        select notification_id, claim_token, true from mine where (select count(*) from mine) < :size
        union all
        select notification_id, claim_token, false from ended where (select count(*) from ended) < :size
        """,
        sqlite="select 1",
        rows=rows,
        result={**_CLAIM_TYPES, "is_mine": Boolean},
    )


_EVENTS: Mapping[str, ParameterKind] = {"event_id": "id", "terminal_id": "id", "terminal_error": "text"}
_write_any = _writing(
    {**_CLAIM, **_TRANSITION, **_END, **_EVENTS},
    ", ".join(f"{name} = u.{name}" for name in _TRANSITION),
    _SET_END,
    "u.status, u.finished_at, u.duration_ms, u.error, u.reply, u.event_id, u.terminal_id, u.terminal_error",
)
# Most ends are a plain delivery, which is told by a third of the columns; `_is_plain` says when.
_write_delivered = _writing(
    {
        **_CLAIM,
        "finished_at": "moment",
        "phase": "text",
        "reply": "text",
        "duration_ms": "int",
        "event_id": "id",
        "terminal_id": "id",
    },
    """
    status = 'delivered', last_attempt_at = u.finished_at, delivered_at = u.finished_at, terminal_at = u.finished_at,
    next_attempt_at = null, due_at = null, held_by = null, held_reason = null
    """,
    """
    finished_at = u.finished_at, outcome = 'delivered', phase = u.phase, reply = u.reply, error = null,
    duration_ms = u.duration_ms
    """,
    """
    'delivered' as status, u.finished_at, u.duration_ms, cast(null as text) as error, u.reply, u.event_id,
    u.terminal_id, cast(null as text) as terminal_error
    """,
)
# SQLite needs a statement for each.
_write_sqlite = Statement(
    f"""
    update notifications set {_SET_ROW} from {{rows}} where {_IS_MINE}
    returning notifications.notification_id, notifications.claim_token
    """,
    rows={**_CLAIM, **_TRANSITION},
    result=_CLAIM_TYPES,
)
_end_sqlite = Statement(
    f"""
    update attempts set {_SET_END} from {{rows}} where {_IS_ITS_ATTEMPT}
    returning attempts.notification_id, attempts.claim_token
    """,
    rows={**_CLAIM, **_END},
    result=_CLAIM_TYPES,
)

_TARGETS: Mapping[str, ParameterKind] = {
    "notification_id": "id",
    "address": "text",
    "status": "text",
    "error": "text",
    "settled_at": "moment",
}
_settle = Statement(
    """
    update targets set status = u.status, error = u.error, settled_at = u.settled_at
    from {rows} where targets.notification_id = u.notification_id and targets.address = u.address
    """,
    rows=_TARGETS,
)

_history = Statement(
    """
    select claim_token as token, cycle, node_id, is_lone, started_at, finished_at, outcome, phase, reply, error,
        duration_ms
    from attempts where notification_id = :notification_id order by claim_token
    """,
    result={
        "token": BigInteger,
        "cycle": Integer,
        "node_id": Text,
        "is_lone": Boolean,
        "started_at": Moment,
        "finished_at": Moment,
        "outcome": Text,
        "phase": Text,
        "reply": Text,
        "error": Text,
        "duration_ms": BigInteger,
    },
)

_counts = Statement(
    """
    select notification_id, count(*) as attempts from attempts where notification_id {any:ids}
    group by notification_id
    """,
    lists={"ids": "id"},
    result={"notification_id": Id, "attempts": BigInteger},
)


def apply(conn: Connection, owner: str, finished: Sequence[Finished], event_ids: Sequence[str]) -> set[str]:
    """Write these ends; the ids whose claim was lost, for which nothing but a late audit entry was written.

    `event_ids` are two for each end: the attempt's audit entry, and the terminal one where there is one.
    """
    write = _apply_sqlite if conn.dialect.name == "sqlite" else _apply_postgresql
    mine, news = write(conn, owner, finished, event_ids)
    # A late end is recorded on its own attempt, unless it stands there already: then this is the second run of a
    # transaction whose commit went through unheard, and there is nothing to say.
    late = [
        (f, event_id)
        for f, event_id in zip(finished, event_ids[::2], strict=True)
        if _claim(f) not in mine and _claim(f) in news
    ]
    audit.add_for_notifications(
        conn,
        owner,
        [
            _entry(event_id, f, AuditStatus.SKIPPED, f"late result, nothing changed: {f.outcome}")
            for f, event_id in late
        ],
    )
    return {f.notification_id for f, _ in late}


def settle_targets(conn: Connection, changes: Collection[tuple[str, Transition, datetime]]) -> None:
    """Write the targets that these transitions change."""
    rows = [
        (notification_id, target.address, target.status.value, target.error, at)
        for notification_id, transition, at in changes
        for target in transition.targets
    ]
    if rows:
        _settle.run(conn, rows)


def history(conn: Connection, notification_id: str) -> list[AttemptRecord]:
    """All attempts of a notification, oldest first, over all its cycles."""
    return [AttemptRecord(**row._mapping) for row in _history.run(conn, notification_id=notification_id)]


def counts(conn: Connection, ids: Collection[str]) -> dict[str, int]:
    """How many attempts these notifications have seen; those without any are left out."""
    found = _counts.run(conn, ids=list(ids)) if ids else []
    return {row.notification_id: row.attempts for row in found}


def _apply_postgresql(
    conn: Connection, owner: str, finished: Sequence[Finished], event_ids: Sequence[str]
) -> tuple[set[ClaimKey], set[ClaimKey]]:
    """The claims under which a row was this owner's to change, and those whose attempt had no end yet."""
    plain: list[tuple[Any, ...]] = []
    others: list[tuple[Any, ...]] = []
    for f, first, second in zip(finished, event_ids[::2], event_ids[1::2], strict=True):
        t = f.transition
        if _is_plain(f):
            plain.append((*_claim(f), f.finished_at, f.phase, f.reply, f.duration_ms, first, second))
            continue
        terminal_id = second if t.status.is_terminal else None
        terminal_error = t.last_error if t.status is Status.PARKED else None
        others.append((*_claim(f), *_transition(t), *_end(f), first, terminal_id, terminal_error))
    mine: set[ClaimKey] = set()
    news: set[ClaimKey] = set()
    for statement, rows in ((_write_delivered, plain), (_write_any, others)):
        if rows:
            written = statement.run(conn, rows, owner=owner, actor=SYSTEM, size=len(rows))
            mine |= _named(written, rows, is_mine=True)
            news |= _named(written, rows, is_mine=False)
    # What is delivered has reached all its targets; the statement knows that by itself.
    _settle_all(conn, [f for f in finished if f.transition.status is not Status.DELIVERED and _claim(f) in mine])
    return mine, news


def _is_plain(f: Finished) -> bool:
    """Whether the row became what a delivery alone makes of it: retry count and last error stay as they were."""
    t = f.transition
    return f.outcome == "delivered" and t.delivered_at == t.last_attempt_at == f.finished_at and f.error is None


def _named(written: Sequence[Row[Any]], rows: Sequence[tuple[Any, ...]], *, is_mine: bool) -> set[ClaimKey]:
    """The claims among these rows that a statement has named, all of them where it only counted them."""
    found = [row for row in written if row.is_mine is is_mine]
    count = next(row.claim_token for row in found if row.notification_id is None)
    if count == len(rows):
        return {(row[0], row[1]) for row in rows}
    return {(row.notification_id, row.claim_token) for row in found if row.notification_id is not None}


def _apply_sqlite(
    conn: Connection, owner: str, finished: Sequence[Finished], event_ids: Sequence[str]
) -> tuple[set[ClaimKey], set[ClaimKey]]:
    changed = _write_sqlite.run(conn, [(*_claim(f), *_transition(f.transition)) for f in finished], owner=owner)
    mine = {(row.notification_id, row.claim_token) for row in changed}
    ended = _end_sqlite.run(conn, [(*_claim(f), *_end(f)) for f in finished])
    entries = []
    for f, first, second in zip(finished, event_ids[::2], event_ids[1::2], strict=True):
        if _claim(f) in mine:
            entries.append(_entry(first, f, AuditStatus.ATTEMPTED, f.error))
            if f.transition.status.is_terminal:
                error = f.transition.last_error if f.transition.status is Status.PARKED else None
                entries.append(_entry(second, f, AuditStatus(f.transition.status.value), error))
    audit.add_for_notifications(conn, owner, entries)
    _settle_all(conn, [f for f in finished if _claim(f) in mine])
    return mine, {(row.notification_id, row.claim_token) for row in ended}


def _settle_all(conn: Connection, finished: Sequence[Finished]) -> None:
    settle_targets(conn, [(f.notification_id, f.transition, f.finished_at) for f in finished])


def _entry(event_id: str, f: Finished, status: AuditStatus, error: str | None) -> audit.NotificationEntry:
    return audit.NotificationEntry(
        event_id,
        f.notification_id,
        f.finished_at,
        AuditKind.NOTIFY_DELIVER,
        status,
        SYSTEM,
        f.duration_ms if status is AuditStatus.ATTEMPTED else None,
        error,
        f.reply if status is AuditStatus.ATTEMPTED else None,
    )


def _claim(f: Finished) -> ClaimKey:
    return f.notification_id, f.token


def _transition(t: Transition) -> tuple[Any, ...]:
    return (
        t.status.value,
        t.retry_count,
        t.last_error,
        t.last_attempt_at,
        t.next_attempt_at,
        t.due_at,
        t.delivered_at,
        t.terminal_at,
        t.held_by,
        t.held_reason,
    )


def _end(f: Finished) -> tuple[Any, ...]:
    return f.finished_at, f.outcome, f.phase, f.reply, f.error, f.duration_ms
