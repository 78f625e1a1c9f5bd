"""Reads rows of the buffer in the form in which the nodes of a pair exchange and compare them."""

from collections.abc import Iterator, Sequence
from typing import Any

import apsw
import msgspec

from fieldpost.link.pair_rows import (
    CallCells,
    CallState,
    CommandCells,
    KeyCells,
    MessageCells,
    RecordCells,
    RejectedCells,
    RowKind,
    RowState,
)


def columns_of(kind: type[msgspec.Struct], *without: str) -> str:
    """The columns of a kind of row, in the order of its fields."""
    return ", ".join(name for name in kind.__struct_fields__ if name not in without)


_OWN_MESSAGE = """
SELECT sequence, message_id, payload, created_at FROM messages WHERE message_id = :id AND status <> 'marker'
"""
_COPY = f"SELECT {columns_of(MessageCells)} FROM copies WHERE message_id = :id"
_CALL = f"SELECT {columns_of(CallCells, 'claim_left')}, claimed_until - :now FROM calls WHERE message_id = :id"
_RECORD = f"SELECT {columns_of(RecordCells)} FROM tracking WHERE call_id = :id"
_REJECTED = f"SELECT {columns_of(RejectedCells)} FROM rejected WHERE message_id = :id"
_KEY = f"SELECT {columns_of(KeyCells)} FROM keys WHERE key = :id"
_COMMAND = f"SELECT {columns_of(CommandCells)} FROM commands WHERE intent_id = :id"

_IN_RANGE = "> :after AND ({name} <= :until OR :until IS NULL)"
_IDS: dict[str, str] = {
    "message": "SELECT message_id AS id FROM messages WHERE message_id {range} AND message_id <> ''",
    "copy": "SELECT message_id AS id FROM copies WHERE message_id {range}",
    "call": "SELECT call_id AS id FROM tracking WHERE call_id {range}",
    "rejected": "SELECT message_id AS id FROM rejected WHERE message_id {range}",
    "key": "SELECT key AS id FROM keys WHERE key {range}",
    "command": "SELECT intent_id AS id FROM commands WHERE intent_id {range}",
}
_NAMES = {"call": "call_id", "key": "key", "command": "intent_id"}


def read_state(
    cursor: apsw.Cursor, kind: RowKind, row_id: str, now: int, *, number: int = 0, is_new: bool = False
) -> RowState:
    """The present state of a row of this node; `now` is its time in microseconds, for the rest of claims."""
    state = RowState(kind=kind, id=row_id, number=number, is_new=is_new)
    given = {"id": row_id}
    replace = msgspec.structs.replace
    match kind:
        case "message" if cells := _one(cursor, _OWN_MESSAGE, given):
            return replace(state, message=MessageCells(*cells))
        case "call" if cells := _one(cursor, _RECORD, given):
            call = _one(cursor, _CALL, given | {"now": now})
            return replace(state, call=CallState(_struct(RecordCells, cells), _struct(CallCells, call)))
        case "rejected" if cells := _one(cursor, _REJECTED, given):
            return replace(state, rejected=RejectedCells(*cells))
        case "key" if cells := _one(cursor, _KEY, given):
            return replace(state, key=KeyCells(*cells))
        case "command" if cells := _one(cursor, _COMMAND, given):
            return replace(state, command=CommandCells(*cells))
        case _:
            return state


def read_copy(cursor: apsw.Cursor, message_id: str) -> RowState:
    """The state of a notification of the other node."""
    cells = _one(cursor, _COPY, {"id": message_id})
    return RowState(kind="message", id=message_id, message=MessageCells(*cells) if cells else None)


def ids_in_range(
    cursor: apsw.Cursor, kind: RowKind, after: str, until: str | None, *, is_copy: bool = False, limit: int = -1
) -> list[str]:
    """The ids of a kind in (after, until], in their order. `is_copy` reads the notifications of the other node."""
    source = "copy" if is_copy and kind == "message" else kind
    name = _NAMES.get(kind, "message_id")
    statement = _IDS[source].format(range=_IN_RANGE.format(name=name)) + " ORDER BY id LIMIT :limit"
    rows: list[Any] = cursor.execute(statement, {"after": after, "until": until, "limit": limit}).fetchall()
    return [row_id for (row_id,) in rows]


def shared_cells(state: RowState) -> Iterator[Any]:
    """The cells of a row that both nodes have: all but the rest of its claim."""
    yield state.id
    for part in (state.message, state.rejected, state.key, state.command):
        if part is not None:
            yield from msgspec.structs.astuple(part)
    if state.call is not None:
        yield from msgspec.structs.astuple(state.call.record)
        if state.call.call is not None:
            yield from msgspec.structs.astuple(msgspec.structs.replace(state.call.call, claim_left=None))


def size_of(state: RowState) -> int:
    """The approximate size of a row on the wire."""
    call = None if state.call is None else state.call.call
    payloads = [part.payload for part in (state.message, call, state.rejected) if part is not None]
    return 400 + sum(map(len, payloads))


def _struct(kind: type[Any], cells: Sequence[Any] | None) -> Any:
    return None if cells is None else kind(**dict(zip(kind.__struct_fields__, cells, strict=True)))


def _one(cursor: apsw.Cursor, statement: str, given: dict[str, Any]) -> Any:
    rows = cursor.execute(statement, given).fetchall()
    return rows[0] if rows else None
