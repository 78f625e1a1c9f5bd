"""Reads rows of the buffer in the form in which the nodes of a pair exchange and compare them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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


def _of(table: str, kind: type[msgspec.Struct], *without: str) -> str:
    return ", ".join(f"{table}.{name}" for name in kind.__struct_fields__ if name not in without)


# Per kind: the column of the id, and the rows. `copy` is a notification of the other node.
_ROWS: dict[str, tuple[str, str]] = {
    "message": ("message_id", "SELECT sequence, message_id, payload, created_at FROM messages"),
    "copy": ("message_id", f"SELECT {columns_of(MessageCells)} FROM copies"),
    "call": (
        "call_id",
        f"SELECT {_of('r', RecordCells)}, {_of('c', CallCells, 'claim_left')}, c.claimed_until - :now "
        "FROM tracking r LEFT JOIN calls c ON c.message_id = r.call_id",
    ),
    "rejected": ("message_id", f"SELECT {columns_of(RejectedCells)} FROM rejected"),
    "key": ("key", f"SELECT {columns_of(KeyCells)} FROM keys"),
    "command": ("intent_id", f"SELECT {columns_of(CommandCells)} FROM commands"),
}
_IDS: dict[str, tuple[str, str]] = {
    "message": ("message_id", "SELECT message_id FROM messages"),
    "copy": ("message_id", "SELECT message_id FROM copies"),
    "call": ("call_id", "SELECT call_id FROM tracking"),
    "rejected": ("message_id", "SELECT message_id FROM rejected"),
    "key": ("key", "SELECT key FROM keys"),
    "command": ("intent_id", "SELECT intent_id FROM commands"),
}
_RECORD_FIELDS = len(RecordCells.__struct_fields__)


def read_state(
    cursor: apsw.Cursor, kind: RowKind, row_id: str, now: int, *, number: int = 0, is_new: bool = False
) -> RowState:
    """The present state of a row of this node; `now` is its time in microseconds, for the rest of claims."""
    rows: list[Any] = []
    if kind in _ROWS:
        name, select = _ROWS[kind]
        rows = cursor.execute(f"{select} WHERE {name} = :id", {"id": row_id, "now": now}).fetchall()
    return _state(kind, row_id, rows[0] if rows else None, number=number, is_new=is_new)


def states_in_range(
    cursor: apsw.Cursor,
    kind: RowKind,
    after: str,
    until: str | None,
    now: int,
    *,
    is_copy: bool = False,
    limit: int = -1,
) -> Iterator[RowState]:
    """The states of a kind with an id in (after, until], in their order. The cursor is in use until the last one."""
    for cells in _in_range(cursor, _ROWS, kind, after, until, now, is_copy=is_copy, limit=limit):
        yield _state(kind, cells[1] if kind == "message" else cells[0], cells)


def ids_in_range(
    cursor: apsw.Cursor, kind: RowKind, after: str, until: str | None, *, is_copy: bool = False, limit: int = -1
) -> list[str]:
    """The ids of a kind in (after, until], in their order. `is_copy` reads the notifications of the other node."""
    return [row_id for (row_id,) in _in_range(cursor, _IDS, kind, after, until, 0, is_copy=is_copy, limit=limit)]


def _in_range(
    cursor: apsw.Cursor,
    tables: Mapping[str, tuple[str, str]],
    kind: RowKind,
    after: str,
    until: str | None,
    now: int,
    *,
    is_copy: bool,
    limit: int,
) -> Iterable[Any]:
    name, select = tables["copy" if is_copy and kind == "message" else kind]
    end = "" if until is None else f"AND {name} <= :until"
    given = {"after": after, "until": until, "now": now, "limit": limit}
    return cursor.execute(f"{select} WHERE {name} > :after {end} ORDER BY {name} LIMIT :limit", given)


def _state(
    kind: RowKind, row_id: str, cells: Sequence[Any] | None, *, number: int = 0, is_new: bool = False
) -> RowState:
    state = RowState(kind=kind, id=row_id, number=number, is_new=is_new)
    if cells is None:
        return state
    replace = msgspec.structs.replace
    match kind:
        case "message":
            return replace(state, message=MessageCells(*cells))
        case "call":
            record = _struct(RecordCells, cells[:_RECORD_FIELDS])
            call = cells[_RECORD_FIELDS:]
            return replace(state, call=CallState(record, None if call[0] is None else _struct(CallCells, call)))
        case "rejected":
            return replace(state, rejected=RejectedCells(*cells))
        case "key":
            return replace(state, key=KeyCells(*cells))
        case "command":
            return replace(state, command=CommandCells(*cells))
        case _:
            return state


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


def _struct(kind: type[Any], cells: Sequence[Any]) -> Any:
    return kind(**dict(zip(kind.__struct_fields__, cells, strict=True)))
