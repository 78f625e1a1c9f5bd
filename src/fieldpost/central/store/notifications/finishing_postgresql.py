"""Ending attempts on PostgreSQL: one statement writes rows, attempts, targets and audit entries."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Boolean, Connection, Row

from fieldpost.central.store.engine.statement import ParameterKind, Statement
from fieldpost.central.store.notifications.attempts import ClaimKey, Finished
from fieldpost.central.store.notifications.breakers import IS_SETTLED
from fieldpost.central.store.notifications.finishing_columns import (
    CLAIM,
    CLAIM_TYPES,
    END,
    IS_ITS_ATTEMPT,
    IS_OWNED,
    SET_END,
    SET_FREE,
    TRANSITION,
    end_row,
    transition_row,
)
from fieldpost.central.store.notifications.targets import settle_targets
from fieldpost.core.audit import SYSTEM
from fieldpost.core.delivery.lifecycle import Transition
from fieldpost.core.notification import Status

_REACHED = """
    reached as (
        update targets set status = 'delivered', error = null, settled_at = mine.finished_at from mine
        where targets.notification_id = mine.notification_id and mine.status = 'delivered' and targets.status = 'due'
    )
"""
_AUDITED = """
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
"""


def _mine(set_row: str, returned: str) -> str:
    """The update of the rows that the owner still has. `returned` are the columns for the rest of the statement."""
    return f"""
        update notifications set {set_row}, {SET_FREE} from u where {IS_OWNED}
        returning u.notification_id, u.claim_token, list_name, source_site_id, source_instance_id, source_script,
            origin_execution_id, origin_parent_execution_id, {returned}
    """


def _writing(rows: Mapping[str, ParameterKind], set_row: str, set_end: str, audited: str) -> Statement:
    """One statement for rows, attempts, targets and audit entries; `audited` are the columns that the entries need.

    It returns how many rows and how many attempts it changed, and which ones only if these are not all.
    """
    return Statement(
        f"""
        with u as materialized (select * from {{rows}}),
        mine as ({_mine(set_row, audited)}),
        ended as (
            update attempts set {set_end}, exchanges = cast(u.exchanges_text as jsonb)
            from u where {IS_ITS_ATTEMPT}
            returning attempts.notification_id, attempts.claim_token
        ),
        {_REACHED},
        {_AUDITED}
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
        result={**CLAIM_TYPES, "is_mine": Boolean},
    )


_EVENTS: Mapping[str, ParameterKind] = {"event_id": "id", "terminal_id": "id", "terminal_error": "text"}
_write_any = _writing(
    {**CLAIM, **TRANSITION, **END, **_EVENTS},
    ", ".join(f"{name} = u.{name}" for name in TRANSITION),
    SET_END,
    "u.status, u.finished_at, u.duration_ms, u.error, u.reply, u.event_id, u.terminal_id, u.terminal_error",
)
# Most results are plain deliveries (`_is_plain`), which need a third of the columns.
_DELIVERED: Mapping[str, ParameterKind] = {
    **CLAIM,
    "finished_at": "moment",
    "phase": "text",
    "reply": "text",
    "duration_ms": "int",
    "exchanges_text": "text",
    "event_id": "id",
    "terminal_id": "id",
}
_SET_DELIVERED = """
    status = 'delivered', last_attempt_at = u.finished_at, delivered_at = u.finished_at, terminal_at = u.finished_at,
    next_attempt_at = null, due_at = null, held_by = null, held_reason = null, is_timed = false
"""
_END_DELIVERED = """
    finished_at = {of}.finished_at, outcome = 'delivered', phase = {of}.phase, reply = {of}.reply, error = null,
    duration_ms = {of}.duration_ms
"""
_AUDIT_DELIVERED = """
    'delivered' as status, u.finished_at, u.duration_ms, cast(null as text) as error, u.reply, u.event_id,
    u.terminal_id, cast(null as text) as terminal_error
"""
_write_delivered = _writing(_DELIVERED, _SET_DELIVERED, _END_DELIVERED.format(of="u"), _AUDIT_DELIVERED)
# The same without a transaction around it: it changes nothing unless a success changes none of the breakers, and leaves
# claims that were lost as they are. It returns the claims whose rows it changed.
_deliver = Statement(
    f"""
    with settled as materialized (
        select not exists (
            select 1 from unnest(cast(:breakers as text[])) as wanted(key)
            where not exists (select 1 from breakers where breakers.key = wanted.key and {IS_SETTLED})
        ) as is_settled
    ),
    u as materialized (select * from {{rows}} where (select is_settled from settled)),
    mine as ({_mine(_SET_DELIVERED, f"{_AUDIT_DELIVERED}, u.phase, u.exchanges_text")}),
    ended as (
        update attempts set {_END_DELIVERED.format(of="mine")}, exchanges = cast(mine.exchanges_text as jsonb)
        from mine where {IS_ITS_ATTEMPT.replace("u.", "mine.")}
    ),
    {_REACHED},
    {_AUDITED}
    select notification_id, claim_token from mine
    """,
    sqlite="select 1",
    rows=_DELIVERED,
    result=CLAIM_TYPES,
)


def write(
    conn: Connection, owner: str, finished: Sequence[Finished], event_ids: Sequence[str]
) -> tuple[set[ClaimKey], set[ClaimKey]]:
    """The claims whose row this owner still had and changed, and the claims whose attempt had no end yet."""
    plain: list[tuple[Any, ...]] = []
    others: list[tuple[Any, ...]] = []
    for f, first, second in zip(finished, event_ids[::2], event_ids[1::2], strict=True):
        t = f.transition
        if _is_plain(f):
            plain.append(_delivered_row(f, first, second))
            continue
        terminal_id = second if t.status.is_terminal else None
        terminal_error = t.last_error if t.status is Status.PARKED else None
        others.append((*f.claim, *transition_row(t), *end_row(f), first, terminal_id, terminal_error))
    owned: set[ClaimKey] = set()
    ended: set[ClaimKey] = set()
    for statement, rows in ((_write_delivered, plain), (_write_any, others)):
        if rows:
            written = statement.run(conn, rows, owner=owner, actor=SYSTEM, size=len(rows))
            owned |= _named(written, rows, is_mine=True)
            ended |= _named(written, rows, is_mine=False)
    # The statement itself settles the targets of delivered rows: a delivery has reached them all.
    detailed = [f for f in finished if f.claim in owned and _has_details(f.transition)]
    settle_targets(conn, [(f.notification_id, f.transition, f.finished_at) for f in detailed])
    return owned, ended


def deliver(
    conn: Connection, owner: str, finished: Sequence[Finished], event_ids: Sequence[str], breaker_keys: Collection[str]
) -> set[ClaimKey]:
    """Write simple deliveries in one statement that commits on its own; the claims whose rows it changed."""
    rows = list(map(_delivered_row, finished, event_ids[::2], event_ids[1::2]))
    written = _deliver.run(conn, rows, owner=owner, actor=SYSTEM, breakers=list(breaker_keys))
    return {(row.notification_id, row.claim_token) for row in written}


def is_simple(f: Finished) -> bool:
    """Whether `deliver` can write this end."""
    return _is_plain(f) and not _has_details(f.transition)


def _delivered_row(f: Finished, event_id: str, terminal_id: str) -> tuple[Any, ...]:
    return *f.claim, f.finished_at, f.phase, f.reply, f.duration_ms, f.exchanges_text, event_id, terminal_id


def _has_details(t: Transition) -> bool:
    """Whether a target needs more than the status `delivered`."""
    if t.status is not Status.DELIVERED:
        return True
    return any(one.truncated_to is not None or one.provider_id is not None or one.error for one in t.targets)


def _is_plain(f: Finished) -> bool:
    """Whether only the delivery changes the row: retry count and last error stay as they were."""
    t = f.transition
    return f.outcome == "delivered" and t.delivered_at == t.last_attempt_at == f.finished_at and f.error is None


def _named(written: Sequence[Row[Any]], rows: Sequence[tuple[Any, ...]], *, is_mine: bool) -> set[ClaimKey]:
    """The claims that the statement returned; all of these rows where it only counted them."""
    found = [row for row in written if row.is_mine is is_mine]
    count = next(row.claim_token for row in found if row.notification_id is None)
    if count == len(rows):
        return {(row[0], row[1]) for row in rows}
    return {(row.notification_id, row.claim_token) for row in found if row.notification_id is not None}
