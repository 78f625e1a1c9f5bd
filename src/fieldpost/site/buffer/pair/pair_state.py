"""The pair in a node's buffer: which node this is, its epochs, and how far each node has the changes of the other.

Epochs are on disk before the node acts on them: `take_epoch` raises the numbers of all three counters (sequences of
notifications, changes, change sequences of records) in the transaction that stores the epoch. How far this node has
each epoch of the other is kept for good, one number per epoch and stream, because a node may return after any time.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from fieldpost.core.errors import Conflict
from fieldpost.core.pair.numbering import epoch_of, first_epoch, first_number, is_epoch_of
from fieldpost.link.pair_rows import StreamPosition

_TRIGGERS = Path(__file__).with_name("pair.sql")

_MARKER = """
INSERT INTO messages (sequence, message_id, category, target, payload, status, created_at)
VALUES (:number, '', 'notification', '', '', 'marker', 0)
ON CONFLICT (message_id) DO UPDATE SET sequence = excluded.sequence WHERE excluded.sequence > sequence
"""
# Above the present rows: the next notification gets the number after the marker's.
_MARKER_PLACE = "SELECT max((SELECT coalesce(max(sequence), 0) FROM messages WHERE message_id <> '') + 1, :number)"
_BEGIN_CHANGES = "INSERT INTO changes (number, kind, id) VALUES (:number, 'epoch', :epoch) ON CONFLICT DO NOTHING"
_RAISE = "UPDATE facts SET value = max(value, :value) WHERE name = :name"
_SET = "INSERT INTO facts (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_GET = "SELECT value FROM facts WHERE name = :name"
_RECEIVED = "SELECT coalesce(max(value), 0) FROM facts WHERE name GLOB :pattern"
_ALL_RECEIVED = "SELECT name, value FROM facts WHERE name GLOB 'pair_received_*'"
_TAKE_COPIES = """
INSERT INTO messages (message_id, category, target, payload, created_at)
SELECT message_id, 'notification', 'central', payload, created_at FROM copies ORDER BY number LIMIT :limit
ON CONFLICT (message_id) DO NOTHING
"""
_DROP_COPIES = """
DELETE FROM copies WHERE number IN (SELECT number FROM copies ORDER BY number LIMIT :limit) RETURNING number
"""
_TAKE_ALL = {"limit": -1}
_FORGET_PEER = """
DELETE FROM facts
WHERE name GLOB 'pair_received_*' OR name GLOB 'pair_acked_*' OR name IN ('pair_pruned', 'pair_taken_over')
"""
_NAME_BUFFER = "INSERT INTO facts (name, value) VALUES ('pair_buffer', lower(hex(randomblob(16))))"
_FORGET_PAIR = "DELETE FROM facts WHERE name GLOB 'pair_*'"
_TRIGGER_NAMES = "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name GLOB 'pair_*'"

# All rows from before the pair are new to the other node. Notifications are read from their own table.
_ENTER_EXISTING = """
INSERT INTO changes (kind, id)
SELECT 'call', call_id FROM tracking
UNION ALL SELECT 'rejected', message_id FROM rejected
UNION ALL SELECT 'key', key FROM keys
UNION ALL SELECT 'command', intent_id FROM commands
"""
# Records that this node changed as standby have numbers below those that central has read from the other leader.
_RENUMBER = """
UPDATE tracking SET change_sequence = later.place + (SELECT value FROM facts WHERE name = 'change_sequence')
FROM (
    SELECT call_id AS id, row_number() OVER (ORDER BY change_sequence) AS place FROM tracking
    WHERE change_sequence > :after AND change_sequence < :before
) AS later
WHERE later.id = call_id
"""
_COUNT_ON = """
UPDATE facts SET value = max(value, (SELECT coalesce(max(change_sequence), 0) FROM tracking))
WHERE name = 'change_sequence'
"""


@dataclass(frozen=True, slots=True)
class TakenEpoch:
    """An epoch that this node took without central, until central has confirmed the report."""

    epoch: int
    taken_at: str
    cause: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class LastSwitch:
    """When and why this node last became the leader or stopped leading."""

    at: str
    reason: str


@dataclass(frozen=True, slots=True)
class PairState:
    """This node of the pair. All values are on disk."""

    node: int
    held: int
    known: int
    is_leading: bool


def create(cursor: apsw.Cursor, node: int, incarnation: str | None = None) -> PairState:
    """Make this buffer that of a node of a pair; the second node takes over the incarnation of the first.

    Raises Conflict if it is already one.
    """
    if find(cursor) is not None:
        raise Conflict("pair.exists", "this node already belongs to a pair")
    held = first_epoch(node)
    cursor.execute(_TRIGGERS.read_text(encoding="utf-8"))
    last = _get(cursor, "change_sequence") or 0
    _store(cursor, {"pair_node": node, "pair_held": held, "pair_known": held, "pair_leading": 0})
    _store(cursor, {"pair_standby_from": max(last, first_number(held))})
    _count_from(cursor, held)
    if node == 1:
        # The numbers of existing records would be those of the first node's.
        cursor.execute(_RENUMBER, {"after": 0, "before": first_number(held)})
        cursor.execute(_COUNT_ON)
    cursor.execute(_NAME_BUFFER)
    _enter_all(cursor)
    if incarnation is not None:
        cursor.execute(_SET, {"name": "incarnation", "value": incarnation})
    return PairState(node, held, held, False)


def remove(cursor: apsw.Cursor) -> None:
    """Make this a single site's buffer again. Messages and records stay; copies become the node's own notifications."""
    for (name,) in cursor.execute(_TRIGGER_NAMES).fetchall():
        cursor.execute(f"DROP TRIGGER {name}")
    cursor.execute(_TAKE_COPIES, _TAKE_ALL)
    for statement in ("DELETE FROM copies", "DELETE FROM messages WHERE message_id = ''", "DELETE FROM changes"):
        cursor.execute(statement)
    cursor.execute(_FORGET_PAIR)


def buffer_name(cursor: apsw.Cursor) -> str:
    """The name of this buffer file; a salvaged or new file has another one."""
    return str(_text(cursor, "pair_buffer"))


def meet(cursor: apsw.Cursor, peer_buffer: str) -> bool:
    """Store the name of the other node's buffer; returns whether it is a different buffer than before.

    Another buffer has no copy of this node's rows and has started its own numbers again. So this node forgets both
    positions, records all its rows as changes, and takes over the copies of the former buffer's notifications.
    """
    known = _text(cursor, "pair_peer_buffer")
    if known == peer_buffer:
        return False
    cursor.execute(_SET, {"name": "pair_peer_buffer", "value": peer_buffer})
    if known is None:
        return False
    cursor.execute(_TAKE_COPIES, _TAKE_ALL)
    cursor.execute("DELETE FROM copies")
    cursor.execute(_FORGET_PEER)
    _enter_all(cursor)
    return True


def find(cursor: apsw.Cursor) -> PairState | None:
    """The state of this node; None for a single site."""
    node = _get(cursor, "pair_node")
    if node is None:
        return None
    held, known = _get(cursor, "pair_held"), _get(cursor, "pair_known")
    return PairState(node, held or 0, known or 0, bool(_get(cursor, "pair_leading")))


def get(cursor: apsw.Cursor) -> PairState:
    """The state of this node. Raises Conflict for a single site."""
    state = find(cursor)
    if state is None:
        raise Conflict("pair.none", "this site has no pair")
    return state


def take_epoch(cursor: apsw.Cursor, epoch: int) -> PairState:
    """Store that this node leads under the epoch; all later numbers are above its first.

    Raises Conflict unless it is a new epoch of this node, higher than all known ones.
    """
    state = get(cursor)
    if epoch <= state.known or not is_epoch_of(state.node, epoch):
        raise Conflict("pair.epoch", f"epoch {epoch} cannot follow {state.known} at node {state.node}")
    _store(cursor, {"pair_held": epoch, "pair_known": epoch, "pair_leading": 1})
    _count_from(cursor, epoch)
    standby_from = _get(cursor, "pair_standby_from") or 0
    cursor.execute(_RENUMBER, {"after": standby_from, "before": first_number(state.held + 1)})
    cursor.execute(_COUNT_ON)
    return get(cursor)


def learn_epoch(cursor: apsw.Cursor, epoch: int) -> PairState:
    """Store that an epoch exists, and stop leading if it is higher than the own one."""
    state = get(cursor)
    if epoch > state.known:
        _store(cursor, {"pair_known": epoch})
        if state.is_leading:
            return stop_leading(cursor)
    return get(cursor)


def stop_leading(cursor: apsw.Cursor) -> PairState:
    """Store that this node does not lead any more."""
    last = _get(cursor, "change_sequence") or 0
    _store(cursor, {"pair_leading": 0, "pair_standby_from": last})
    return get(cursor)


def report_taken(cursor: apsw.Cursor, taken: TakenEpoch) -> None:
    """Keep an epoch that was taken without central until central knows it."""
    value = json.dumps([taken.epoch, taken.taken_at, taken.cause, taken.reason])
    cursor.execute(_SET, {"name": "pair_taken", "value": value})


def unreported(cursor: apsw.Cursor) -> TakenEpoch | None:
    """The newest epoch that was taken without central and not reported yet."""
    found = _text(cursor, "pair_taken")
    return None if found is None else TakenEpoch(*json.loads(found))


def reported(cursor: apsw.Cursor, epoch: int) -> None:
    """Forget the report of this epoch: central has confirmed it."""
    taken = unreported(cursor)
    if taken is not None and taken.epoch == epoch:
        cursor.execute("DELETE FROM facts WHERE name = 'pair_taken'")


def note_switch(cursor: apsw.Cursor, switch: LastSwitch) -> None:
    cursor.execute(_SET, {"name": "pair_switch", "value": json.dumps([switch.at, switch.reason])})


def last_switch(cursor: apsw.Cursor) -> LastSwitch | None:
    """The newest switch of this node; None if it never led."""
    found = _text(cursor, "pair_switch")
    return None if found is None else LastSwitch(*json.loads(found))


def take_copies(cursor: apsw.Cursor, limit: int) -> bool:
    """Make up to `limit` notifications of the other node this node's own, after a takeover; whether there are more.

    They get new numbers here, so that the other node hears of them. Central recognizes those that it has already.
    """
    cursor.execute(_TAKE_COPIES, {"limit": limit})
    taken: list[Any] = cursor.execute(_DROP_COPIES, {"limit": limit}).fetchall()
    if taken:
        _store(cursor, {"pair_taken_over": max(taken_over(cursor), *(number for (number,) in taken))})
    return bool(cursor.execute("SELECT 1 FROM copies LIMIT 1").fetchall())


def taken_over(cursor: apsw.Cursor) -> int:
    """The highest number of a notification of the other node that this one has taken over; 0 if it has none."""
    return _get(cursor, "pair_taken_over") or 0


def received(cursor: apsw.Cursor) -> StreamPosition:
    """How far this node has the changes of the other."""
    return StreamPosition(_newest(cursor, "messages"), _newest(cursor, "changes"))


def received_by_epoch(cursor: apsw.Cursor) -> dict[int, StreamPosition]:
    """How far this node has each epoch of the other."""
    found: dict[int, dict[str, int]] = {}
    rows: list[Any] = cursor.execute(_ALL_RECEIVED).fetchall()
    for name, value in rows:
        _, _, stream, epoch = name.split("_")
        found.setdefault(int(epoch), {})[stream] = value
    return {epoch: StreamPosition(**values) for epoch, values in sorted(found.items())}


def set_received(cursor: apsw.Cursor, until: StreamPosition) -> None:
    """Store how far this node has the changes of the other, for the epochs that these numbers belong to."""
    for stream, number in (("messages", until.messages), ("changes", until.changes)):
        name = f"pair_received_{stream}_{epoch_of(number)}"
        _store(cursor, {name: max(number, _get(cursor, name) or 0)})


def acked(cursor: apsw.Cursor) -> StreamPosition:
    """How far the other node has the changes of this one, as it has acknowledged."""
    return StreamPosition(_get(cursor, "pair_acked_messages") or 0, _get(cursor, "pair_acked_changes") or 0)


def set_acked(cursor: apsw.Cursor, until: StreamPosition) -> None:
    """Store the acknowledgement of the other node. A late one changes nothing."""
    known = acked(cursor)
    _store(
        cursor,
        {
            "pair_acked_messages": max(known.messages, until.messages),
            "pair_acked_changes": max(known.changes, until.changes),
        },
    )


def pruned(cursor: apsw.Cursor) -> int:
    """The newest number that was removed from `changes`: a reader before it needs a snapshot."""
    return _get(cursor, "pair_pruned") or 0


def set_pruned(cursor: apsw.Cursor, number: int) -> None:
    _store(cursor, {"pair_pruned": max(number, pruned(cursor))})


def _enter_all(cursor: apsw.Cursor) -> None:
    """Record a change of every row for the other node, with numbers above the present ones."""
    last = cursor.execute("SELECT coalesce(max(number), 0) FROM changes").fetchall()[0][0]
    cursor.execute(_ENTER_EXISTING)
    cursor.execute("DELETE FROM changes WHERE kind <> 'epoch' AND number <= :last", {"last": last})
    cursor.execute("UPDATE changes SET created = number WHERE kind = 'call'")


def _text(cursor: apsw.Cursor, name: str) -> str | None:
    rows: list[Any] = cursor.execute(_GET, {"name": name}).fetchall()
    return rows[0][0] if rows else None


def _count_from(cursor: apsw.Cursor, epoch: int) -> None:
    """Raise the counters of notifications, changes and records to the first number of the epoch."""
    number = first_number(epoch)
    place = cursor.execute(_MARKER_PLACE, {"number": number}).fetchall()[0][0]
    cursor.execute(_MARKER, {"number": place})
    cursor.execute(_BEGIN_CHANGES, {"number": number, "epoch": str(epoch)})
    cursor.execute(_RAISE, {"name": "change_sequence", "value": number})


def _newest(cursor: apsw.Cursor, stream: str) -> int:
    rows: list[Any] = cursor.execute(_RECEIVED, {"pattern": f"pair_received_{stream}_*"}).fetchall()
    return int(rows[0][0])


def _get(cursor: apsw.Cursor, name: str) -> int | None:
    rows: list[Any] = cursor.execute(_GET, {"name": name}).fetchall()
    return int(rows[0][0]) if rows else None


def _store(cursor: apsw.Cursor, values: dict[str, int]) -> None:
    cursor.executemany(_SET, [{"name": name, "value": value} for name, value in values.items()])
