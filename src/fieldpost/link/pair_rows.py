"""Rows of a site's buffer as the two nodes of a pair exchange them.

The fields are the columns that both nodes share, in the words of the tables. Times are microseconds by the clock of the
sending node; the end of a claim is sent as the time that is left of it, because the clocks may differ.
"""

from typing import Annotated, Literal

import msgspec

from fieldpost.link.messages import Seq

RowKind = Literal["message", "call", "rejected", "key", "command", "epoch"]
"""The kinds of rows: `call` is a call's message with its tracking record; `epoch` is the beginning of an epoch."""

ColumnInt = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""An integer as a column of the buffer has it."""

ROW_KINDS: tuple[RowKind, ...] = ("message", "call", "rejected", "key", "command")
"""The kinds with their own rows, in the order of a snapshot."""


class MessageCells(msgspec.Struct, frozen=True):
    """A notification."""

    number: Seq
    message_id: str
    payload: str
    created_at: ColumnInt


class CallCells(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A cached call that has not ended."""

    message_id: str
    category: str
    target: str
    payload: str
    status: str
    retry_count: ColumnInt = 0
    last_error: str | None = None
    created_at: ColumnInt
    last_attempt_at: ColumnInt | None = None
    due_at: ColumnInt = 0
    claimed_by: str | None = None
    claim_token: ColumnInt = 0
    claim_left: ColumnInt | None = None
    """How long the claim lasts from now, in microseconds."""


class RecordCells(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The tracking record of a cached call."""

    call_id: str
    category: str
    target_summary: str
    status: str
    retry_count: ColumnInt = 0
    last_error: str | None = None
    http_status: ColumnInt | None = None
    instance: str | None = None
    script: str | None = None
    execution_id: str | None = None
    parent_execution_id: str | None = None
    created_at: ColumnInt
    updated_at: ColumnInt
    terminal_at: ColumnInt | None = None
    version: Seq
    change_sequence: Seq


class CallState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A cached call: its message while it has not ended, and its record."""

    record: RecordCells
    call: CallCells | None = None


class RejectedCells(msgspec.Struct, frozen=True):
    """An entry of the rejected box."""

    message_id: str
    category: str
    target: str
    payload: str
    code: str
    error: str
    retry_count: ColumnInt
    created_at: ColumnInt
    rejected_at: ColumnInt


class KeyCells(msgspec.Struct, frozen=True):
    """An idempotency key."""

    key: str
    message_id: str
    digest: bytes
    created_at: ColumnInt


class CommandCells(msgspec.Struct, frozen=True):
    """An applied command of central."""

    intent_id: str
    outcome: str
    detail: str | None
    applied_at: ColumnInt


class RowState(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The state of one row: the field of its kind, or none of them if the row does not exist."""

    kind: RowKind
    id: str
    number: Seq = 0
    """The number of its newest change; 0 in a snapshot."""
    is_new: bool = False
    """Whether the receiver has never had this call in any state."""
    message: MessageCells | None = None
    call: CallState | None = None
    rejected: RejectedCells | None = None
    key: KeyCells | None = None
    command: CommandCells | None = None


class StreamPosition(msgspec.Struct, frozen=True, order=True):
    """How far a node has the two streams of the other: new notifications, and changes of all rows."""

    messages: Seq = 0
    changes: Seq = 0


def later(one: StreamPosition, other: StreamPosition) -> StreamPosition:
    """The later of both positions, in each stream."""
    return StreamPosition(max(one.messages, other.messages), max(one.changes, other.changes))


def has_reached(position: StreamPosition, other: StreamPosition) -> bool:
    """Whether a position is not before the other one in either stream."""
    return position.messages >= other.messages and position.changes >= other.changes


class ChangeBatch(msgspec.Struct, frozen=True, tag_field="t", tag="changes", kw_only=True):
    """All changes after one position up to another, read from one snapshot of the sender's buffer."""

    epoch: Seq
    """The last epoch that the sender held. The node with the higher one leads."""
    known: Seq
    """The highest epoch that the sender knows."""
    after: StreamPosition
    until: StreamPosition
    received: StreamPosition
    """How far the sender has the changes of the receiver, in the same snapshot: an acknowledgement."""
    messages: tuple[MessageCells, ...]
    """New notifications, to be applied before the changes."""
    changes: tuple[RowState, ...]
    has_more: bool = False


class SnapshotPiece(msgspec.Struct, frozen=True, tag_field="t", tag="snapshot_piece", kw_only=True):
    """All rows of one kind with an id in (after, until]; `until` None means to the end."""

    epoch: Seq
    """As in a batch, like `known` and `received`."""
    known: Seq
    received: StreamPosition
    kind: RowKind
    after: str
    until: str | None
    rows: tuple[RowState, ...]
