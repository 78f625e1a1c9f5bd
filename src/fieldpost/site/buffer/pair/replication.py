"""Reads the changes of this node for the other one, from committed rows.

Theory of operation. No process pushes its changes: scripts write without a running agent. The agent reads two streams
by cursor. New notifications are the rows of `messages` above a sequence; all other changes are listed in `changes` (see
`pair.sql`) and read in their present state. Both come from one snapshot. So a notification that was removed before it
was read is never sent, its removal is sent anyway and changes nothing, and a row that changed several times is sent
once.

Invariant: a batch that starts at the position of the receiver and is applied as a whole leaves no gap. `changes` is
pruned up to the acknowledged number. If the other node is away for too long, entries of rows that no longer exist are
pruned too; a reader before them gets None and needs a snapshot. Entries of existing rows stay, so that a node always
knows which of its rows the other one has not received.
"""

from collections.abc import Sequence
from typing import Any

import apsw

from fieldpost.core.pair.range_digest import RangeDigest, digest_range
from fieldpost.link.messages import FRAME_BYTES_MAX, ITEMS_MAX
from fieldpost.link.pair_messages import DigestCheck, DigestVerdict
from fieldpost.link.pair_rows import (
    ROW_KINDS,
    ChangeBatch,
    MessageCells,
    RowKind,
    RowState,
    SnapshotPiece,
    StreamPosition,
)
from fieldpost.site.buffer.pair import pair_state
from fieldpost.site.buffer.pair.row_states import ids_in_range, read_state, shared_cells, size_of, states_in_range

BATCH_BYTES_MAX = FRAME_BYTES_MAX // 8
"""The most bytes of each stream in a batch; one row may exceed it."""
CHANGES_MAX = 1_000_000
"""The entries of `changes` beyond which those of removed rows are pruned without an acknowledgement."""
PRUNED_MAX = 2_000
"""The most entries that are removed in one transaction: scripts wait for it."""

_NEW_MESSAGES = """
SELECT sequence, message_id, payload, created_at FROM messages
WHERE sequence > :after AND status <> 'marker' ORDER BY sequence LIMIT :limit
"""
_CHANGES = "SELECT number, created, kind, id FROM changes WHERE number > :after ORDER BY number LIMIT :limit"
_LAST = "SELECT (SELECT coalesce(max(sequence), 0) FROM messages), (SELECT coalesce(max(number), 0) FROM changes)"
_BEHIND = """
SELECT (SELECT count(*) FROM messages WHERE sequence > :messages AND status <> 'marker')
    + (SELECT count(*) FROM changes WHERE number > :changes AND kind <> 'epoch')
"""
_FIRST = "SELECT sequence FROM messages WHERE message_id <> '' ORDER BY sequence LIMIT 1"
# The newest entry stays: the next one gets the number after it.
_PRUNE = """
DELETE FROM changes WHERE number IN (
    SELECT number FROM changes WHERE number <= :until AND number < (SELECT max(number) FROM changes)
    ORDER BY number LIMIT :limit
)
"""
_COUNT = "SELECT count(*) FROM changes"
_REMOVED = """
SELECT number FROM changes
WHERE number < (SELECT max(number) FROM changes) AND CASE kind
    WHEN 'message' THEN id NOT IN (SELECT message_id FROM messages)
    WHEN 'call' THEN id NOT IN (SELECT call_id FROM tracking)
    WHEN 'rejected' THEN id NOT IN (SELECT message_id FROM rejected)
    WHEN 'key' THEN id NOT IN (SELECT key FROM keys)
    WHEN 'command' THEN id NOT IN (SELECT intent_id FROM commands)
END
ORDER BY number LIMIT :limit
"""
_PRUNE_REMOVED = "DELETE FROM changes WHERE number = :number"


def read_batch(
    cursor: apsw.Cursor,
    after: StreamPosition,
    now: int,
    *,
    items_max: int = ITEMS_MAX,
    bytes_max: int = BATCH_BYTES_MAX,
    ignores_pruned: bool = False,
) -> ChangeBatch | None:
    """The changes after this position, up to both limits but at least one; None if the reader needs a snapshot."""
    cursor.execute("BEGIN")
    try:
        if after.changes < pair_state.pruned(cursor) and not ignores_pruned:
            return None
        state = pair_state.get(cursor)
        last, received = position(cursor), pair_state.received(cursor)
        messages, size = _new_messages(cursor, after.messages, items_max, bytes_max)
        messages_until = last.messages if len(messages) < items_max and size < bytes_max else messages[-1].number
        changes: list[RowState] = []
        changes_until = after.changes
        size = 0
        rows: list[Any] = cursor.execute(_CHANGES, {"after": after.changes, "limit": items_max}).fetchall()
        for number, created, kind, row_id in rows:
            if size >= bytes_max:
                break
            is_new = created is not None and created > after.changes
            changes.append(read_state(cursor, kind, row_id, now, number=number, is_new=is_new))
            size += size_of(changes[-1])
            changes_until = number
        has_more = messages_until < last.messages or changes_until < last.changes
    finally:
        cursor.execute("COMMIT")
    return ChangeBatch(
        epoch=state.held,
        known=state.known,
        after=after,
        until=StreamPosition(messages_until, changes_until),
        received=received,
        messages=tuple(messages),
        changes=tuple(changes),
        has_more=has_more,
    )


def position(cursor: apsw.Cursor) -> StreamPosition:
    """The newest numbers of both streams of this node."""
    rows: list[Any] = cursor.execute(_LAST).fetchall()
    return StreamPosition(*rows[0])


def behind(cursor: apsw.Cursor, position: StreamPosition) -> int:
    """The lag of a node at this position, in changes."""
    given = {"messages": position.messages, "changes": position.changes}
    rows: list[Any] = cursor.execute(_BEHIND, given).fetchall()
    return int(rows[0][0])


def prune(cursor: apsw.Cursor, *, limit: int = PRUNED_MAX) -> bool:
    """Remove up to `limit` entries of `changes` that the other node has acknowledged; whether there may be more."""
    cursor.execute(_PRUNE, {"until": pair_state.acked(cursor).changes, "limit": limit})
    return cursor.connection.changes() == limit


def removed_rows(cursor: apsw.Cursor, *, changes_max: int = CHANGES_MAX, limit: int = PRUNED_MAX) -> list[int]:
    """The numbers of up to `limit` entries of rows that no longer exist, if `changes` has too many entries.

    A search through all entries; outside of a write, because scripts would wait for it.
    """
    counted: list[Any] = cursor.execute(_COUNT).fetchall()
    if counted[0][0] <= changes_max:
        return []
    rows: list[Any] = cursor.execute(_REMOVED, {"limit": limit}).fetchall()
    return [number for (number,) in rows]


def prune_removed(cursor: apsw.Cursor, numbers: Sequence[int]) -> None:
    """Remove these entries without an acknowledgement: a reader before them needs a snapshot."""
    cursor.executemany(_PRUNE_REMOVED, [{"number": number} for number in numbers])
    pair_state.set_pruned(cursor, max(numbers))


def read_piece(
    cursor: apsw.Cursor, kind: RowKind, after: str, now: int, *, items_max: int = ITEMS_MAX, until: str | None = None
) -> SnapshotPiece:
    """The next piece of a snapshot: the rows of a kind after this id, up to the limits but at least one."""
    cursor.execute("BEGIN")
    try:
        state, received = pair_state.get(cursor), pair_state.received(cursor)
        rows: list[RowState] = []
        size = 0
        end = until
        for row in states_in_range(cursor, kind, after, until, now, limit=items_max + 1):
            if rows and (len(rows) == items_max or size >= BATCH_BYTES_MAX):
                end = rows[-1].id
                break
            rows.append(row)
            size += size_of(row)
    finally:
        cursor.execute("COMMIT")
    return SnapshotPiece(
        epoch=state.held,
        known=state.known,
        received=received,
        kind=kind,
        after=after,
        until=end,
        rows=tuple(rows),
    )


def next_piece(
    piece: SnapshotPiece, kinds: Sequence[RowKind] = ROW_KINDS, until: str | None = None
) -> tuple[RowKind, str] | None:
    """Kind and start of the piece that follows in a walk over these kinds, each up to `until`; None after the last."""
    if piece.until is not None and piece.until != until:
        return piece.kind, piece.until
    place = kinds.index(piece.kind) + 1
    return (kinds[place], "") if place < len(kinds) else None


def range_digest(
    cursor: apsw.Cursor, kind: RowKind, after: str, until: str | None, *, is_copy: bool = False
) -> RangeDigest:
    """The digest of this node's rows of a kind in (after, until].

    `is_copy` takes the copies of the other node's notifications, to compare them with that node's own.
    """
    cursor.execute("BEGIN")
    try:
        return _digest(cursor, kind, after, until, is_copy=is_copy)
    finally:
        cursor.execute("COMMIT")


def read_check(cursor: apsw.Cursor, kind: RowKind, after: str, rows_max: int) -> DigestCheck | None:
    """The digest of the next `rows_max` rows of a kind, with both positions in the same snapshot.

    None if the other node's rows of this kind count: a standby compares its own notifications only.
    """
    cursor.execute("BEGIN")
    try:
        if kind != "message" and not pair_state.get(cursor).is_leading:
            return None
        ids = ids_in_range(cursor, kind, after, None, limit=rows_max + 1)
        until = ids[rows_max - 1] if len(ids) > rows_max else None
        found = _digest(cursor, kind, after, until)
        first: list[Any] = cursor.execute(_FIRST).fetchall() if kind == "message" else []
        return DigestCheck(
            kind=kind,
            after=after,
            until=until,
            rows=found.rows,
            digest=found.digest,
            position=position(cursor),
            received=pair_state.received(cursor),
            first=first[0][0] if first else 0,
        )
    finally:
        cursor.execute("COMMIT")


def compare(cursor: apsw.Cursor, check: DigestCheck) -> DigestVerdict:
    """Compare a range of the other node's rows with this node's, in one snapshot.

    `busy` unless each node has exactly the changes that the other one had for its digest, or while it still has
    notifications that this one has taken over.
    """
    cursor.execute("BEGIN")
    try:
        if pair_state.received(cursor) != check.position or position(cursor) != check.received:
            return "busy"
        if check.kind == "message" and 0 < check.first <= pair_state.taken_over(cursor):
            return "busy"
        found = _digest(cursor, check.kind, check.after, check.until, is_copy=True)
        return "equal" if (found.rows, found.digest) == (check.rows, check.digest) else "differs"
    finally:
        cursor.execute("COMMIT")


def _digest(cursor: apsw.Cursor, kind: RowKind, after: str, until: str | None, *, is_copy: bool = False) -> RangeDigest:
    states = states_in_range(cursor, kind, after, until, 0, is_copy=is_copy)
    return digest_range(after, until, (tuple(shared_cells(state)) for state in states))


def _new_messages(cursor: apsw.Cursor, after: int, items_max: int, bytes_max: int) -> tuple[list[MessageCells], int]:
    """New notifications and their size; the size reaches the limit if there may be more."""
    taken: list[MessageCells] = []
    size = 0
    for cells in cursor.execute(_NEW_MESSAGES, {"after": after, "limit": items_max}):
        if size >= bytes_max:
            break
        taken.append(MessageCells(*cells))
        size += 400 + len(taken[-1].payload)
    return taken, size
