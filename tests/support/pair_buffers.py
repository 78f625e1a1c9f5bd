"""Two buffers of one pair, without agents: batches are exchanged by hand."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from fieldpost.core.ids import CallId
from fieldpost.core.notification import Provenance
from fieldpost.core.sites.forwarding import CallDecision, Clear, Park, TryAgain
from fieldpost.core.sites.message import Category, Message, NewCall
from fieldpost.core.times import to_microseconds
from fieldpost.link.codec import decode_as, encode
from fieldpost.link.pair_rows import ROW_KINDS, ChangeBatch, RowKind, SnapshotPiece, StreamPosition
from fieldpost.site.buffer import calls
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.fresh_ids import fresh_id
from fieldpost.site.buffer.keys import IdempotencyKey
from fieldpost.site.buffer.pair import pair_state, replica, replication
from fieldpost.site.buffer.pair.pair_state import PairState
from fieldpost.site.buffer.pair.replica import AppliedBatch
from fieldpost.site.buffer.tracking import Tracking
from fieldpost.site.pair.leadership import Leadership

NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)
DECISIONS: dict[str, CallDecision] = {
    "delivered": Clear(http_status=200),
    "retrying": TryAgain(NOW, "503", is_counted=True),
    "parked": Park("gave up", True),
}


class NodeBuffer:
    """The buffer of one node."""

    def __init__(self, folder: Path, node: int, incarnation: str | None = None) -> None:
        folder.mkdir()
        self.now = NOW
        self.node = node
        self.buffer = Buffer(folder / "buffer.db")
        self.buffer.write(pair_state.create, node, incarnation)

    @property
    def state(self) -> PairState:
        return self.buffer.read(pair_state.get)

    def lead(self, epoch: int) -> None:
        self.buffer.write(pair_state.take_epoch, epoch)

    def send(self, payload: str = "{}", key: str | None = None) -> str:
        message_id = fresh_id(1)
        given = None if key is None else IdempotencyKey(key, b"digest")
        return self.buffer.add(message_id, payload, to_microseconds(self.now), given)

    def ack(self, *message_ids: str) -> None:
        """Settle notifications as accepted by central."""
        self.buffer.settle([(one, Clear()) for one in message_ids], self.now)

    def issue(self, claim_s: float = 25.0) -> Message:
        """A script's call, whose first attempt is in flight."""
        call = NewCall(
            call_id=CallId(fresh_id(1)),
            category=Category.EXTERNAL_CALL,
            target="erp",
            target_summary="erp POST /orders",
            payload="{}",
            provenance=Provenance("plant-7"),
            created_at=self.now,
        )
        issued = self.buffer.issue(call, claimant="script", until=self.now + timedelta(seconds=claim_s))
        assert issued.message is not None
        return issued.message

    def settle(self, message: Message, result: str) -> bool:
        return self.buffer.write(calls.settle, message, DECISIONS[result], self.now) is not None

    def claim(self, items_max: int = 10) -> list[Message]:
        until = self.now + timedelta(seconds=25)
        given: dict[str, Any] = {"claimant": f"agent-{self.node}", "until": until, "items_max": items_max}
        return self.buffer.write(calls.claim, Category.EXTERNAL_CALL, "erp", self.now, **given)

    def batch(self, after: StreamPosition, **limits: int) -> ChangeBatch | None:
        """A batch as it arrives at the other node."""
        found = self.buffer.read(replication.read_batch, after, to_microseconds(self.now), **limits)
        return None if found is None else decode_as(encode(found), ChangeBatch)

    def prune(self, changes_max: int) -> None:
        """Prune as the agent does if `changes` may have this many entries."""
        self.buffer.write(replication.prune)
        if removed := self.buffer.read(replication.removed_rows, changes_max=changes_max):
            self.buffer.write(replication.prune_removed, removed)

    def apply(self, batch: ChangeBatch) -> AppliedBatch:
        return self.buffer.write(replica.apply_batch, batch, self.now)

    @property
    def received(self) -> StreamPosition:
        return self.buffer.read(pair_state.received)

    def rows(self, statement: str) -> list[Any]:
        return self.buffer.read(lambda cursor: cursor.execute(statement).fetchall())


def leadership_of(node: NodeBuffer, monotonic: Callable[[], float] = lambda: 0.0) -> Leadership:
    """The leadership of a node that has just started."""
    return Leadership(node.buffer, monotonic, run=node.node + 70)


def copy_changes(source: NodeBuffer, target: NodeBuffer, **limits: int) -> AppliedBatch:
    """Copy all changes of one node to the other."""
    rows = duplicates = 0
    while True:
        batch = source.batch(target.received, **limits)
        assert batch is not None
        applied = target.apply(batch)
        rows, duplicates = rows + applied.rows, duplicates + applied.duplicates
        if not batch.has_more:
            return AppliedBatch(rows, duplicates)


def copy_both_ways(one: NodeBuffer, other: NodeBuffer) -> None:
    """Exchange changes until neither node has more: the leader's results of merging go back."""
    leader, standby = sorted((one, other), key=lambda node: -node.state.held)
    if standby.state.known < leader.state.known:
        standby.buffer.write(pair_state.learn_epoch, leader.state.known)
    while copy_changes(leader, standby).rows + copy_changes(standby, leader).rows:
        pass


def take_snapshot(source: NodeBuffer, target: NodeBuffer, items_max: int = 500) -> int:
    """Copy all rows of one node to the other in pieces; returns the number of pieces."""
    start = source.buffer.read(replication.position)
    place: tuple[RowKind, str] | None = (ROW_KINDS[0], "")
    pieces = 0
    while place is not None:
        moment = to_microseconds(source.now)
        piece = source.buffer.read(replication.read_piece, *place, moment, items_max=items_max)
        target.buffer.write(replica.apply_piece, decode_as(encode(piece), SnapshotPiece), target.now)
        place = replication.next_piece(piece)
        pieces += 1
    state = source.state
    target.buffer.write(replica.end_snapshot, state.held, state.known, start)
    return pieces


class OpenNode(Protocol):
    """A node whose buffer is open."""

    @property
    def node(self) -> int: ...
    @property
    def buffer(self) -> Buffer: ...


def differing(one: OpenNode, other: OpenNode) -> list[str]:
    """The kinds of rows whose digests differ; notifications are compared with the copies of the other node."""
    found = []
    for kind in ROW_KINDS:
        for source, target in ((one, other), (other, one)):
            ours = source.buffer.read(replication.range_digest, kind, "", None)
            theirs = target.buffer.read(replication.range_digest, kind, "", None, is_copy=True)
            if ours != theirs:
                found.append(f"{kind} of node {source.node}")
    return found


@contextmanager
def pair_buffers(folder: Path) -> Iterator[tuple[NodeBuffer, NodeBuffer]]:
    """A leader with epoch 2 and its standby."""
    first = NodeBuffer(folder / "a", 0)
    nodes = first, NodeBuffer(folder / "b", 1, Tracking(first.buffer.read).incarnation())
    nodes[0].lead(2)
    nodes[1].buffer.write(pair_state.learn_epoch, 2)
    try:
        yield nodes
    finally:
        for node in nodes:
            node.buffer.close()
