"""Cached calls in the buffer. Each change of a call updates message, record and event log together, under a claim.

Theory of operation. A cached call is in the buffer before its first attempt, and each attempt needs the *claim*: the
caller inserts the call already claimed, the agent claims unclaimed ones. A claim is a name, a token that grows with
each claim, and an end. It is not a status: if its holder dies the row is unchanged, and after the end the agent claims
it.

Invariants: a result is written only if its token is still the current one, so of two processes that tried the same call
only the present holder of the claim changes it. A late result changes nothing and is logged. A parked call has no
claim, and only a person moves it. The end of a claim is compared with the site's clock; an end further away than any
claim lasts results from a jump of the clock and counts as passed.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import apsw

from fieldpost.core.notification import Provenance
from fieldpost.core.sites.forwarding import CALL_WAIT_MAX, CallDecision, Clear, Fail, Park, TryAgain
from fieldpost.core.sites.message import CallRecord, CallStatus, Category, Message, NewCall
from fieldpost.core.sites.site_event import SiteEventKind
from fieldpost.core.times import from_microseconds, to_microseconds
from fieldpost.site.buffer import event_log, tracking
from fieldpost.site.buffer.pair import pair_state
from fieldpost.site.buffer.rows import CALL_COLUMNS, MESSAGE, NEW_CALL

CLAIM_MAX = timedelta(hours=1)
"""The longest claim."""
UNKNOWN_RESULT = "an attempt ended without a known result: the call may be executed twice"

_INSERT = """
INSERT INTO calls
    (message_id, category, target, payload, created_at, claimed_by, claim_token, claimed_until)
VALUES (:call_id, :category, :target, :payload, :created_at, :claimant, 1, :until)
"""

_TRIED = "status <> 'parked'"
_FREE = "(claimed_until IS NULL OR claimed_until <= :now OR claimed_until > :claim_end)"

# Skip scan: from one target to the next by the index, however many rows each has.
_TARGETS = f"""
WITH RECURSIVE targets (name) AS (
    SELECT min(target) FROM calls WHERE category = :category AND {_TRIED}
    UNION ALL
    SELECT (SELECT min(target) FROM calls WHERE category = :category AND target > name AND {_TRIED})
    FROM targets WHERE name IS NOT NULL
)
"""
_OF_TARGET = f"FROM calls WHERE category = :category AND target = name AND {_TRIED}"

_DUE_TARGETS = f"""
{_TARGETS} SELECT name FROM targets
WHERE EXISTS (SELECT 1 {_OF_TARGET} AND due_at <= :now AND {_FREE}) OR EXISTS (SELECT 1 {_OF_TARGET} AND due_at > :far)
"""

_NEXT_DUE = f"""
{_TARGETS} SELECT min((SELECT min(due_at) {_OF_TARGET} AND due_at > :now)) FROM targets WHERE name IS NOT NULL
"""

# A due time this far away results from a jump of the clock.
_REPAIR = f"""
UPDATE calls SET due_at = 0 WHERE category = :category AND target = :target AND {_TRIED} AND due_at > :far
"""

_DUE = f"""
SELECT sequence FROM calls
WHERE category = :category AND target = :target AND {_TRIED} AND due_at <= :now AND {_FREE}
ORDER BY due_at, sequence LIMIT :items_max
"""
_CLAIM = f"""
UPDATE calls SET claimed_by = :claimant, claim_token = claim_token + 1, claimed_until = :until
WHERE sequence IN ({_DUE})
RETURNING {CALL_COLUMNS}
"""
_UNSETTLED = f"SELECT {CALL_COLUMNS} FROM calls WHERE sequence IN ({_DUE}) AND claimed_by IS NOT NULL"

_HELD = "message_id = :message_id AND claim_token = :token AND claimed_by IS NOT NULL"

_END = f"DELETE FROM calls WHERE {_HELD} RETURNING retry_count"

_KEEP = f"""
UPDATE calls
SET status = :status, retry_count = retry_count + :counted, last_error = :error, last_attempt_at = :now,
    due_at = :due_at, claimed_by = NULL, claimed_until = NULL
WHERE {_HELD}
RETURNING retry_count
"""

_RELEASE = f"UPDATE calls SET claimed_by = NULL, claimed_until = NULL WHERE {_HELD}"

_RETRY = f"""
UPDATE calls SET status = 'pending', retry_count = 0, last_error = NULL, due_at = 0
WHERE message_id = :message_id AND status = 'parked'
RETURNING {CALL_COLUMNS}
"""

_DISCARD = f"DELETE FROM calls WHERE message_id = :message_id AND status = 'parked' RETURNING {CALL_COLUMNS}"


def insert(cursor: apsw.Cursor, call: NewCall, claimant: str, until: datetime) -> Message:
    """Buffer a call, already claimed by its caller; returns the claimed message."""
    cursor.execute(_INSERT, NEW_CALL.parameters(call) | {"claimant": claimant, "until": to_microseconds(until)})
    sequence = cursor.connection.last_insert_rowid()
    tracking.insert(cursor, call)
    message = Message(
        sequence=sequence,
        message_id=call.call_id,
        category=call.category,
        target=call.target,
        payload=call.payload,
        created_at=call.created_at,
        claim_token=1,
    )
    _log(cursor, SiteEventKind.QUEUED, call.created_at, call.target_summary, message, call.provenance)
    return message


def due_targets(cursor: apsw.Cursor, category: Category, now: datetime) -> list[str]:
    """The targets that have a due, unclaimed call."""
    return [name for (name,) in cursor.execute(_DUE_TARGETS, _moments(now) | {"category": category.value})]


def next_due(cursor: apsw.Cursor, category: Category, now: datetime) -> datetime | None:
    """When the next call becomes due after `now`; None if no call will."""
    rows = _rows(cursor, _NEXT_DUE, {"category": category.value, "now": to_microseconds(now)})
    return None if rows[0][0] is None else from_microseconds(rows[0][0])


def claim(
    cursor: apsw.Cursor,
    category: Category,
    target: str,
    now: datetime,
    *,
    claimant: str,
    until: datetime,
    items_max: int,
) -> list[Message]:
    """Claim up to `items_max` due, unclaimed calls of the target, the longest due first.

    In a pair, claims that ended without a result are logged: the target may have accepted the call from the other node.
    """
    parameters = _moments(now) | {"category": category.value, "target": target}
    cursor.execute(_REPAIR, parameters)
    parameters |= {"claimant": claimant, "until": to_microseconds(until), "items_max": items_max}
    unsettled = _rows(cursor, _UNSETTLED, parameters) if pair_state.find(cursor) is not None else []
    taken = [MESSAGE.read(row) for row in _rows(cursor, _CLAIM, parameters)]
    for row in unsettled:
        _log(cursor, SiteEventKind.UNCERTAIN, now, UNKNOWN_RESULT, MESSAGE.read(row))
    return sorted(taken, key=lambda message: (message.due_at or message.created_at, message.sequence))


def settle(cursor: apsw.Cursor, message: Message, decision: CallDecision, now: datetime) -> CallRecord | None:
    """Apply the decision for a claimed message; returns its record, or None if the claim was lost meanwhile."""
    parameters: dict[str, Any] = {"message_id": message.message_id, "token": message.claim_token}
    if isinstance(decision, Clear | Fail):
        rows = _rows(cursor, _END, parameters)
    else:
        parameters |= {
            "status": "retrying" if isinstance(decision, TryAgain) else "parked",
            "counted": int(decision.is_counted),
            "error": decision.error,
            "now": to_microseconds(now),
            "due_at": to_microseconds(decision.due_at) if isinstance(decision, TryAgain) else 0,
        }
        rows = _rows(cursor, _KEEP, parameters)
    status, kind = _OUTCOMES[type(decision)]
    if not rows:
        text = f"the result arrived after the claim was lost: {status.value}"
        _log(cursor, SiteEventKind.LATE, now, text, message)
        return None
    error = None if isinstance(decision, Clear) else decision.error
    given: dict[str, Any] = {"retry_count": rows[0][0], "error": error, "http_status": decision.http_status}
    record = tracking.change(cursor, message.message_id, status, now, **given)
    _log(cursor, kind, now, error or _delivery_text(record), message, record)
    return record


def release(cursor: apsw.Cursor, messages: Sequence[Message]) -> None:
    """End claims without a result, so that the calls can be claimed again."""
    held = [{"message_id": message.message_id, "token": message.claim_token} for message in messages]
    cursor.executemany(_RELEASE, held)


def retry(cursor: apsw.Cursor, call_id: str, now: datetime, by: str | None = None) -> CallRecord | None:
    """Put a parked call back into the queue, due immediately, with its retry count reset; None if it is not parked."""
    for row in _rows(cursor, _RETRY, {"message_id": call_id}):
        record = tracking.change(cursor, call_id, CallStatus.RETRYING, now)
        _log(cursor, SiteEventKind.REQUEUED, now, f"by {by or 'an operator'}", MESSAGE.read(row), record)
        return record
    return None


def discard(cursor: apsw.Cursor, call_id: str, now: datetime, by: str | None = None) -> CallRecord | None:
    """Discard a parked call for good; None if it is not parked."""
    for row in _rows(cursor, _DISCARD, {"message_id": call_id}):
        call = MESSAGE.read(row)
        count, error = call.retry_count, call.last_error
        record = tracking.change(cursor, call_id, CallStatus.DISCARDED, now, retry_count=count, error=error)
        _log(cursor, SiteEventKind.DISCARDED, now, f"by {by or 'an operator'}", call, record)
        return record
    return None


_OUTCOMES: dict[type, tuple[CallStatus, SiteEventKind]] = {
    Clear: (CallStatus.DELIVERED, SiteEventKind.DELIVERED),
    Fail: (CallStatus.FAILED, SiteEventKind.FAILED),
    TryAgain: (CallStatus.RETRYING, SiteEventKind.RETRIED),
    Park: (CallStatus.PARKED, SiteEventKind.PARKED),
}


def _moments(now: datetime) -> dict[str, Any]:
    return {
        "now": to_microseconds(now),
        "far": to_microseconds(now + CALL_WAIT_MAX),
        "claim_end": to_microseconds(now + CLAIM_MAX),
    }


def _rows(cursor: apsw.Cursor, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    # Read to the end: a statement with RETURNING is complete only then.
    return cursor.execute(statement, parameters).fetchall()


def _delivery_text(record: CallRecord | None) -> str:
    if record is None:
        return "delivered"
    return record.target_summary if record.http_status is None else f"{record.target_summary}: {record.http_status}"


def _log(
    cursor: apsw.Cursor,
    kind: SiteEventKind,
    now: datetime,
    text: str,
    message: Message,
    source: CallRecord | Provenance | None = None,
) -> None:
    labels = {} if source is None else {"instance": source.instance, "script": source.script}
    given = {"category": message.category, "message_id": message.message_id, "target": message.target}
    event_log.append(cursor, [event_log.event(kind, now, text, **given, **labels)])
