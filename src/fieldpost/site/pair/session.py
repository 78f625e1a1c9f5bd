"""One connection between the two nodes of a pair, without a socket: messages in, messages out.

Theory of operation. After the greeting, each node sends its changes after the position of the other one, one batch at a
time; the answer to a batch is the receiver's new position. A lost message costs nothing but time: the connection ends,
and the next one starts from the positions in the greeting. So every message may be sent again, and applying it again
changes nothing.

If changes were pruned that the other node lacks, the sender walks through its rows in pieces instead (`snapshot`). A
standby sends only its notifications that way: for all other rows the leader's state counts.

Between two batches, and after each snapshot, the nodes compare digests of ranges (`checks`). A range that differs is
copied again.

Invariants: the position that is sent in an answer is on disk. A refused message has changed nothing. A node that hears
of a higher epoch stores it before it does anything else.

The methods block while they use the buffer; the caller runs them in a thread, one at a time.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

import fieldpost
from fieldpost.core.errors import Conflict, FieldpostError, InvalidInput, Unavailable
from fieldpost.core.sites.site_event import SiteEventKind
from fieldpost.core.times import to_microseconds, to_text
from fieldpost.link.codec import encode
from fieldpost.link.messages import ITEMS_MAX
from fieldpost.link.pair_messages import (
    PAIR_PROTOCOL,
    DigestAnswer,
    DigestCheck,
    PairAck,
    PairBeat,
    PairHandover,
    PairHello,
    PairLeave,
    PairMessage,
    PairRefusal,
    PairSwitch,
    SnapshotEnd,
    decode_pair,
)
from fieldpost.link.pair_rows import (
    ROW_KINDS,
    ChangeBatch,
    RowKind,
    SnapshotPiece,
    StreamPosition,
    has_reached,
    later,
)
from fieldpost.site.buffer import event_log
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.pair import pair_state, replica, replication
from fieldpost.site.buffer.tracking import Tracking
from fieldpost.site.pair.lag import missing_numbers
from fieldpost.site.pair.leadership import Leadership
from fieldpost.site.pair.range_checks import RangeChecks
from fieldpost.site.pair.settings_digest import differences

PIECE_ROWS = 100
"""The most rows in a piece of a snapshot. Scripts wait for a core while one is read or applied."""


@dataclass(slots=True)
class _Snapshot:
    """A walk through this node's rows; the other node has all changes up to `start` when it is complete."""

    start: StreamPosition
    kinds: tuple[RowKind, ...]
    place: tuple[RowKind, str] | None
    until: str | None = None
    """The end of a range that is copied again; None walks to the end of all kinds."""
    is_repair: bool = False


class PairSession:
    """The exchange with the other node over one connection."""

    def __init__(
        self,
        buffer: Buffer,
        site: str,
        now: Callable[[], datetime],
        leadership: Leadership,
        *,
        items_max: int = ITEMS_MAX,
        digests: Mapping[str, str] | None = None,
        on_leave: Callable[[], None] | None = None,
        on_switch: Callable[[], None] | None = None,
    ) -> None:
        """`digests` are those of this node's settings. The other node leaves the pair (`on_leave`), or asks this one to
        hand over (`on_switch`)."""
        self._digests = dict(digests or {})
        self._on_leave = on_leave
        self._on_switch = on_switch
        self._posted: deque[PairMessage] = deque()
        self._is_leaving = False
        self.has_left = False
        """Whether the other node has confirmed that this one leaves."""
        self.peer_version: str | None = None
        self.differences: tuple[str, ...] = ()
        """The settings in which the two nodes differ, by name."""
        self.is_complete = False
        """Whether this node had all changes of the other one at some moment of this connection."""
        self._buffer = buffer
        self._site = site
        self._now = now
        self._leadership = leadership
        self._items_max = items_max
        self._peer: StreamPosition | None = None
        self._waits_for_answer = False
        self._snapshot: _Snapshot | None = None
        self.checks = RangeChecks(buffer)
        self.position = StreamPosition()
        """This node's newest numbers, for its heartbeats; kept up to date by the agent."""
        self.peer_position = StreamPosition()
        """The newest numbers that the other node has announced; those it had not handed over are lost with its disk."""
        self.snapshots = 0
        self.last_refusal: PairRefusal | None = None
        """The newest refusal of the other node: wait before sending again."""
        self._has_resent = False

    def greeting(self) -> bytes:
        """The first message to send."""
        state = self._buffer.read(pair_state.get)
        hello = PairHello(
            protocol=PAIR_PROTOCOL,
            version=fieldpost.__version__,
            site=self._site,
            node=state.node,
            incarnation=Tracking(self._buffer.read).incarnation(),
            held=state.held,
            known=state.known,
            received=self._buffer.read(pair_state.received),
            position=self._buffer.read(replication.position),
            buffer=self._buffer.read(pair_state.buffer_name),
            sent_at=to_text(self._now()),
            digests=self._digests,
        )
        return encode(hello)

    def heartbeat(self) -> bytes:
        """The heartbeat to send now."""
        return encode(PairBeat(self._leadership.heartbeat(), self.position))

    def leave(self) -> None:
        """Leave the pair, after all changes have been handed over."""
        if not self._is_leaving:
            self._is_leaving = True
            self.post(PairLeave())

    def post(self, message: PairMessage) -> None:
        """Send a message as soon as possible, if the connection lives."""
        self._posted.append(message)

    def posted(self) -> bytes | None:
        """The next message that was posted."""
        return encode(self._posted.popleft()) if self._posted and self.is_ready else None

    @property
    def is_ready(self) -> bool:
        """Whether the other node has sent its greeting."""
        return self._peer is not None

    def lag(self) -> int:
        """How many changes of this node the other one lacks, as far as it has answered."""
        return self._buffer.read(replication.behind, self._peer or self._buffer.read(pair_state.acked))

    def next_message(self) -> bytes | None:
        """The next message to send: a batch, a piece of a snapshot or a comparison; None if there is nothing now."""
        if self._peer is None or self._waits_for_answer:
            return None
        piece = self._next_piece() if self._snapshot is not None else None
        message = piece or self._next_batch(self._peer) or self.checks.next()
        if message is None:
            return None
        self._waits_for_answer = True
        return encode(message)

    @property
    def is_copying(self) -> bool:
        """Whether a snapshot, or the repair of a range, has not ended."""
        return self._snapshot is not None

    @property
    def is_comparing(self) -> bool:
        """Whether ranges of rows are being compared or copied again."""
        return self.checks.is_running or self._snapshot is not None

    def receive(self, data: bytes) -> bytes | None:
        """Handle a message of the other node; returns the answer to send, if it has one.

        Raises InvalidInput or Conflict for a greeting that does not fit: the connection must be closed then.
        """
        try:
            message = decode_pair(data)
        except (Conflict, InvalidInput) as error:
            return self._refusal(error)
        if isinstance(message, PairHello):
            self._greet(message)
            return None
        if self._peer is None:
            raise InvalidInput("pair.no_hello", "the first message must be the greeting")
        try:
            return self._handle(message)
        except (Conflict, InvalidInput, Unavailable) as error:
            # Unavailable is a full disk, for instance: the copy stops, and the connection lives.
            return self._refusal(error)

    def _handle(self, message: PairMessage) -> bytes | None:
        match message:
            case PairBeat(beat=beat, position=position):
                self._leadership.hear(beat)
                self.peer_position = later(self.peer_position, position)
            case ChangeBatch():
                self._hear_epoch(message.epoch, message.known)
                self._buffer.write(replica.apply_batch, message, self._now())
                self.is_complete = self.is_complete or not message.has_more
                return self._ack()
            case SnapshotPiece():
                self._hear_epoch(message.epoch, message.known)
                self._buffer.write(replica.apply_piece, message, self._now())
                return self._ack()
            case SnapshotEnd(epoch=epoch, known=known, until=until):
                self._hear_epoch(epoch, known)
                self._buffer.write(replica.end_snapshot, epoch, known, until)
                self.is_complete = True
                return self._ack()
            case DigestCheck():
                return encode(DigestAnswer(self._buffer.read(replication.compare, message)))
            case PairAck(received=received):
                self._answered(received)
            case PairRefusal(known=known, received=received):
                self.last_refusal = message
                self._leadership.hear_epoch(known)
                self._snapshot = None
                self.checks.stop()
                self._answered(received)
            case DigestAnswer(verdict=verdict):
                self._waits_for_answer = False
                if (check := self.checks.answered(verdict)) is not None:
                    place = (check.kind, check.after)
                    self._snapshot = _Snapshot(check.position, (check.kind,), place, check.until, is_repair=True)
            case PairLeave():
                if self._is_leaving:
                    self.has_left = True
                    return None
                if self._on_leave is not None:
                    self._on_leave()
                return encode(PairLeave())
            case PairHandover(epoch=epoch):
                self._leadership.invite(epoch)
            case PairSwitch():
                if self._on_switch is not None:
                    self._on_switch()
            case PairHello():
                pass
        return None

    def _hear_epoch(self, epoch: int, known: int) -> None:
        replica.check_epoch(self._leadership.node.node, epoch)
        self._leadership.hear_epoch(known)

    def _greet(self, hello: PairHello) -> None:
        state = self._buffer.read(pair_state.get)
        if hello.protocol != PAIR_PROTOCOL:
            raise Conflict(
                "pair.version",
                f"the other node has Fieldpost {hello.version} with version {hello.protocol} of the pair protocol, this"
                f" one has version {PAIR_PROTOCOL}",
                hint="upgrade the older node",
            )
        incarnation = Tracking(self._buffer.read).incarnation()
        if (hello.site, hello.node) != (self._site, 1 - state.node) or hello.incarnation != incarnation:
            raise Conflict("pair.stranger", f"the peer is not the other node of {self._site}")
        received = self._buffer.read(pair_state.received)
        if self._buffer.write(pair_state.meet, hello.buffer):
            self._log_new_buffer(received)
            # The positions in this node's greeting were those of the former buffer.
            raise Conflict("pair.new_buffer", "the other node has a new buffer; the exchange starts again")
        self._leadership.hear_epoch(hello.known)
        self.differences = differences(self._digests, hello, self._now())
        self.peer_version = hello.version
        self.peer_position = later(self.peer_position, hello.position)
        self.is_complete = has_reached(received, hello.position)
        self._peer = hello.received
        self._waits_for_answer = False

    def _log_new_buffer(self, received: StreamPosition) -> None:
        missing = missing_numbers(received, self.peer_position)
        text = (
            f"the other node has a new buffer. Of the former one this node has notifications up to number "
            f"{received.messages} and changes up to number {received.changes}; "
            + (f"{missing} are missing, with " if missing else "")
            + "any later ones lost, unless the new buffer has them"
        )
        entry = event_log.event(SiteEventKind.PAIR_REPAIRED, self._now(), text)
        self._buffer.write(event_log.append, [entry])
        self.peer_position = StreamPosition()

    def _answered(self, received: StreamPosition) -> None:
        self._peer = received
        self._waits_for_answer = False
        # During a snapshot all answers are equal. A commit for each would delay scripts.
        if not has_reached(self._buffer.read(pair_state.acked), received):
            self._buffer.write(pair_state.set_acked, received)

    def _next_batch(self, after: StreamPosition) -> ChangeBatch | SnapshotPiece | SnapshotEnd | None:
        if self._buffer.read(replication.position) == after:
            return None
        moment = to_microseconds(self._now())
        # Entries of existing rows are never pruned: a standby that has sent its notifications again lacks nothing.
        batch = self._buffer.read(
            replication.read_batch, after, moment, items_max=self._items_max, ignores_pruned=self._has_resent
        )
        if batch is not None:
            return batch
        state = self._buffer.read(pair_state.get)
        is_standby = self._has_resent = state.held < state.known
        kinds = ROW_KINDS[:1] if is_standby else ROW_KINDS
        start = self._buffer.read(replication.position)
        self._snapshot = _Snapshot(start, kinds, (kinds[0], ""), is_repair=is_standby)
        self.snapshots += 1
        self.checks.begin()
        return self._next_piece()

    def _next_piece(self) -> SnapshotPiece | SnapshotEnd | None:
        snapshot = self._snapshot
        assert snapshot is not None
        if snapshot.place is None:
            self._snapshot = None
            # After a repair, batches continue at the position of the other node.
            state = self._buffer.read(pair_state.get)
            end = SnapshotEnd(epoch=state.held, known=state.known, until=snapshot.start)
            return None if snapshot.is_repair else end
        kind, after = snapshot.place
        moment = to_microseconds(self._now())
        items_max = min(self._items_max, PIECE_ROWS)
        piece = self._buffer.read(
            replication.read_piece, kind, after, moment, items_max=items_max, until=snapshot.until
        )
        snapshot.place = replication.next_piece(piece, snapshot.kinds, snapshot.until)
        return piece

    def _ack(self) -> bytes:
        return encode(PairAck(self._buffer.read(pair_state.received)))

    def _refusal(self, error: FieldpostError) -> bytes:
        known = self._buffer.read(pair_state.get).known
        return encode(PairRefusal(error.code, error.message, known, self._buffer.read(pair_state.received)))
