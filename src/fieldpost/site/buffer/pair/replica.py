"""Applies the changes of the other node of a pair to this node's buffer.

Theory of operation. The node that held the higher epoch leads. A change of the leader replaces the row here, unless
this node has changed the row itself and the leader has not received that: then the leader merges both and its result
comes back. A change of the standby is merged here by the id of its row (`core.pair.merge`), and the result goes back to
the standby, so that both nodes end with the same row, number and version.

Applying writes to tables with triggers that record each change for the other node. The entries for changes that come
from there are removed in the same transaction; their numbers were never visible.

Invariants: a batch is applied whole or not at all, in the order of its numbers and without a gap. A batch that was
applied before changes nothing. A call that this node has finished and purged is not executed again when the other node
returns with an older state of it.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import apsw
import msgspec

from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.core.pair.merge import Branch, merge
from fieldpost.core.pair.numbering import epoch_of, is_epoch_of, next_version
from fieldpost.core.sites.message import CallStatus, Category
from fieldpost.core.sites.site_event import SiteEventKind
from fieldpost.core.times import from_microseconds, to_microseconds, to_text
from fieldpost.link.pair_rows import (
    CallCells,
    CallState,
    ChangeBatch,
    CommandCells,
    KeyCells,
    MessageCells,
    RecordCells,
    RejectedCells,
    RowKind,
    RowState,
    SnapshotPiece,
    StreamPosition,
    later,
)
from fieldpost.site.buffer import calls, event_log, tracking
from fieldpost.site.buffer.pair import pair_state
from fieldpost.site.buffer.pair.row_states import ids_in_range, read_state


def _upsert(table: str, key: str, kind: type[msgspec.Struct], *without: str, **more: str) -> str:
    columns = [*(name for name in kind.__struct_fields__ if name not in without), *more]
    values = [more.get(name, f":{name}") for name in columns]
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns if name != key)
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(values)}) "
        f"ON CONFLICT ({key}) DO UPDATE SET {changes}"
    )


_PUT_COPY = _upsert("copies", "message_id", MessageCells)
_PUT_CALL = _upsert("calls", "message_id", CallCells, "claim_left", claimed_until=":now + :claim_left")
_PUT_RECORD = _upsert("tracking", "call_id", RecordCells)
_PUT_REJECTED = _upsert("rejected", "message_id", RejectedCells)
_PUT_KEY = _upsert("keys", "key", KeyCells)
_PUT_COMMAND = _upsert("commands", "intent_id", CommandCells)

_DROP: dict[RowKind, str] = {
    "message": "DELETE FROM copies WHERE message_id = :id",
    "call": "DELETE FROM calls WHERE message_id = :id",
    "rejected": "DELETE FROM rejected WHERE message_id = :id",
    "key": "DELETE FROM keys WHERE key = :id",
    "command": "DELETE FROM commands WHERE intent_id = :id",
}
_RAISE_VERSION = "UPDATE tracking SET version = :version, change_sequence = :change WHERE call_id = :id"

_IS_OWN = "SELECT 1 FROM changes WHERE kind = :kind AND id = :id AND number > :acked"
_LAST = "SELECT coalesce(max(number), 0) FROM changes"
_DROP_ENTRIES = "DELETE FROM changes WHERE kind = :kind AND id = :id AND number > :after"
# The trigger has removed the former entry of the row. If that had the highest number, it would be used again.
_RESTORE_LAST = """
INSERT INTO changes (number, kind, id)
SELECT :last, :kind, :id WHERE :last > (SELECT coalesce(max(number), -1) FROM changes)
"""
_ENTER = "INSERT INTO changes (kind, id) VALUES (:kind, :id)"
_DROP_OLDER = "DELETE FROM changes WHERE kind = :kind AND id = :id AND number < :number"


@dataclass(frozen=True, slots=True)
class AppliedBatch:
    """The result of applying a batch."""

    rows: int = 0
    duplicates: int = 0
    """Calls and keys that both nodes had used; each is in the event log."""


def apply_batch(cursor: apsw.Cursor, batch: ChangeBatch, now: datetime) -> AppliedBatch:
    """Apply a batch of the other node and store how far this node has its changes.

    Raises Conflict with the code `pair.old_epoch` if the sender does not know the newest epoch, and `pair.gap` if it
    skips changes; InvalidInput for an epoch that the sender cannot hold. Nothing is changed then.
    """
    is_from_leader = _is_from_leader(cursor, batch.epoch, batch.known)
    position = pair_state.received(cursor)
    if batch.after.messages > position.messages or batch.after.changes > position.changes:
        raise Conflict("pair.gap", f"changes are missing: this node has {position}, the batch starts at {batch.after}")
    pair_state.learn_epoch(cursor, batch.known)
    pair_state.set_acked(cursor, batch.received)
    new = [msgspec.structs.asdict(one) for one in batch.messages if one.number > position.messages]
    cursor.executemany(_PUT_COPY, new)
    changes = [one for one in batch.changes if one.number > position.changes]
    applying = _Applying(cursor, now, is_from_leader=is_from_leader)
    for change in changes:
        applying.apply(change)
    pair_state.set_received(cursor, later(batch.until, position))
    return AppliedBatch(len(new) + len(changes), applying.duplicates)


def apply_piece(cursor: apsw.Cursor, piece: SnapshotPiece, now: datetime) -> int:
    """Replace the rows in the range of a piece of the leader's snapshot; returns how many differed.

    Rows that the leader has not received stay. Notifications are those of the sender, whichever node leads. Raises as
    `apply_batch` does, and Conflict with the code `pair.not_leader` for other rows of a standby.
    """
    if not _is_from_leader(cursor, piece.epoch, piece.known) and piece.kind != "message":
        raise Conflict("pair.not_leader", f"a standby does not replace rows of the kind {piece.kind}")
    pair_state.set_acked(cursor, piece.received)
    given = {row.id for row in piece.rows}
    present = ids_in_range(cursor, piece.kind, piece.after, piece.until, is_copy=True)
    gone = [one for one in present if one not in given]
    if piece.kind == "message":
        cursor.executemany(_DROP["message"], [{"id": one} for one in gone])
        cursor.executemany(_PUT_COPY, [msgspec.structs.asdict(row.message) for row in piece.rows if row.message])
        return len(gone) + len(piece.rows)
    applying = _Applying(cursor, now, is_from_leader=True)
    return sum(applying.apply(row) for row in (*(RowState(kind=piece.kind, id=one) for one in gone), *piece.rows))


def end_snapshot(cursor: apsw.Cursor, epoch: int, known: int, until: StreamPosition) -> None:
    """Store that this node has all rows of the leader up to this position. Raises as `apply_piece` does."""
    if not _is_from_leader(cursor, epoch, known):
        raise Conflict("pair.not_leader", "a standby does not send a snapshot")
    pair_state.set_received(cursor, until)


def check_epoch(node: int, epoch: int) -> None:
    """Raise InvalidInput for an epoch that the other node of this one cannot hold."""
    if not is_epoch_of(1 - node, epoch):
        raise InvalidInput("pair.wrong_epoch", f"the other node cannot hold epoch {epoch}", field="epoch")


def _is_from_leader(cursor: apsw.Cursor, epoch: int, known: int) -> bool:
    """Whether the sender leads; raises if it does not know the newest epoch."""
    state = pair_state.get(cursor)
    check_epoch(state.node, epoch)
    if known < state.known:
        raise Conflict("pair.old_epoch", f"epoch {known} is not the newest: {state.known} exists")
    return epoch > state.held


class _Applying:
    """Applies changes in one transaction."""

    def __init__(self, cursor: apsw.Cursor, now: datetime, *, is_from_leader: bool) -> None:
        self._cursor = cursor
        self._now = now
        self._moment = to_microseconds(now)
        self._is_from_leader = is_from_leader
        self._acked = pair_state.acked(cursor).changes
        self.duplicates = 0

    def apply(self, change: RowState) -> bool:
        """Apply one change; whether the row was taken from the other node."""
        if change.kind == "epoch":
            return False
        if change.kind == "message":
            self._put(change)
            return True
        row = {"kind": change.kind, "id": change.id}
        is_own = bool(self._rows(_IS_OWN, row | {"acked": self._acked}))
        if self._is_from_leader and is_own:
            return False
        last = self._rows(_LAST)[0][0]
        is_taken, goes_back = (True, False) if self._is_from_leader else self._merge(change)
        if is_taken and (self._is_from_leader or change.kind != "call"):
            self._put(change)
        if goes_back or is_own:
            self._enter(change)
        else:
            self._cursor.execute(_DROP_ENTRIES, row | {"after": last})
            self._cursor.execute(_RESTORE_LAST, row | {"last": last})
        return is_taken

    def _merge(self, change: RowState) -> tuple[bool, bool]:
        """Merge a change of the standby: whether it is taken, and whether this node's row goes back."""
        if change.call is not None:
            return self._merge_call(change, change.call)
        if change.key is not None:
            return self._merge_key(change.key)
        # A standby removes only its own notifications; retention is the leader's.
        is_given = change.rejected is not None or change.command is not None
        return is_given, False

    def _merge_call(self, change: RowState, theirs: CallState) -> tuple[bool, bool]:
        ours = read_state(self._cursor, "call", change.id, self._moment).call
        if ours is None and not change.is_new:
            # This node had the call, finished it and purged its record.
            return False, True
        record = theirs.record
        branch = None if ours is None else Branch(CallStatus(ours.record.status), ours.record.version)
        merged = merge(branch, Branch(CallStatus(record.status), record.version))
        if ours is not None and merged.is_duplicate:
            self._log_duplicate_call(ours.record, record)
        if ours is not None and _has_unknown_result(*((ours, theirs) if merged.takes_theirs else (theirs, ours))):
            given: dict[str, Any] = {"message_id": record.call_id, "category": Category(record.category)}
            entry = event_log.event(SiteEventKind.UNCERTAIN, self._now, calls.UNKNOWN_RESULT, **given)
            event_log.append(self._cursor, [entry])
        if ours is not None and not (merged.takes_theirs or merged.is_branched):
            if _is_claimed_later(theirs.call, ours.call):
                self._put_call(CallState(ours.record, theirs.call))
            return False, True
        number = tracking.next_change(self._cursor)
        version = record.version
        if ours is not None and merged.is_branched:
            version = next_version(max(version, ours.record.version), number)
        if merged.takes_theirs:
            record = msgspec.structs.replace(record, version=version, change_sequence=number)
            self._put_call(CallState(record, theirs.call))
        else:
            self._cursor.execute(_RAISE_VERSION, {"id": change.id, "version": version, "change": number})
        return merged.takes_theirs, True

    def _merge_key(self, theirs: KeyCells) -> tuple[bool, bool]:
        ours = read_state(self._cursor, "key", theirs.key, self._moment).key
        if ours is None or ours.message_id == theirs.message_id:
            return ours is None, False
        text = (
            f"the key {theirs.key!r} was used on both nodes: at {_time(ours.created_at)} for {ours.message_id}, "
            f"at {_time(theirs.created_at)} for {theirs.message_id}"
        )
        self._log(text, message_id=theirs.message_id)
        return False, True

    def _put(self, change: RowState) -> None:
        """Store the row as given, or remove it."""
        match change:
            case RowState(message=MessageCells() as cells):
                self._cursor.execute(_PUT_COPY, msgspec.structs.asdict(cells))
            case RowState(call=CallState() as call):
                self._put_call(call)
            case RowState(rejected=RejectedCells() as cells):
                self._cursor.execute(_PUT_REJECTED, msgspec.structs.asdict(cells))
            case RowState(key=KeyCells() as cells):
                self._cursor.execute(_PUT_KEY, msgspec.structs.asdict(cells))
            case RowState(command=CommandCells() as cells):
                self._cursor.execute(_PUT_COMMAND, msgspec.structs.asdict(cells))
            case _:
                self._cursor.execute(_DROP[change.kind], {"id": change.id})
                if change.kind == "call":
                    tracking.forget(self._cursor, change.id)

    def _put_call(self, state: CallState) -> None:
        if state.call is None:
            self._cursor.execute(_DROP["call"], {"id": state.record.call_id})
        else:
            self._cursor.execute(_PUT_CALL, msgspec.structs.asdict(state.call) | {"now": self._moment})
        self._cursor.execute(_PUT_RECORD, msgspec.structs.asdict(state.record))

    def _enter(self, change: RowState) -> None:
        """Record a change of the row, so that the other node gets this node's state."""
        row = {"kind": change.kind, "id": change.id}
        self._cursor.execute(_ENTER, row)
        self._cursor.execute(_DROP_OLDER, row | {"number": self._cursor.connection.last_insert_rowid()})

    def _log_duplicate_call(self, ours: RecordCells, theirs: RecordCells) -> None:
        times = f"{_time(ours.terminal_at)} on this node and at {_time(theirs.terminal_at)} on the other one"
        self._log(
            f"{ours.target_summary}: executed twice, at {times}",
            message_id=ours.call_id,
            category=Category(ours.category),
        )

    def _log(self, text: str, **fields: Any) -> None:
        self.duplicates += 1
        event_log.append(self._cursor, [event_log.event(SiteEventKind.DUPLICATE, self._now, text, **fields)])

    def _rows(self, statement: str, given: dict[str, Any] | None = None) -> list[Any]:
        return self._cursor.execute(statement, given).fetchall()


def _has_unknown_result(lost: CallState, kept: CallState) -> bool:
    """Whether the target may have accepted the call in the branch that does not continue, too."""
    if kept.record.status != CallStatus.DELIVERED or lost.call is None:
        return False
    if epoch_of(lost.record.version) == epoch_of(kept.record.version):
        return False
    is_in_flight = lost.call.claimed_by is not None
    return is_in_flight or (lost.call.status != "pending" and lost.record.http_status is None)


def _is_claimed_later(theirs: CallCells | None, ours: CallCells | None) -> bool:
    """Whether the other node claimed the call after its copy; a claim is not a version of the record."""
    return theirs is not None and ours is not None and theirs.claim_token > ours.claim_token


def _time(moment: int | None) -> str:
    return "an unknown time" if moment is None else to_text(from_microseconds(moment))
