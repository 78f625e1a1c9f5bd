"""Messages between the two nodes of a pair, as tagged frozen structs with the codec and limits of the link.

The exchange is the same in both directions. Each node sends its changes in batches, one at a time, and the other
answers with its position. A message that the receiver does not know or cannot apply gets a refusal and changes nothing.
"""

from typing import Literal, get_args

import msgspec

from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.core.pair.leadership import PairHeartbeat
from fieldpost.link.codec import decode_as, decode_written
from fieldpost.link.messages import Seq
from fieldpost.link.pair_rows import ChangeBatch, RowKind, SnapshotPiece, StreamPosition
from fieldpost.link.values import check_values

PAIR_PROTOCOL = 1

DigestVerdict = Literal["equal", "differs", "busy"]
"""`busy`: the nodes do not have the same changes at this moment, so their digests say nothing."""


class PairHello(msgspec.Struct, frozen=True, tag_field="t", tag="pair_hello", kw_only=True):
    """The first message of both nodes."""

    protocol: int
    version: str
    site: str
    node: int
    incarnation: str
    held: Seq
    known: Seq
    received: StreamPosition
    """How far the sender has the changes of the receiver."""
    position: StreamPosition = StreamPosition()
    """The newest changes of the sender."""
    buffer: str = ""
    """The sender's buffer file. Another one than before has started its numbers again: it was salvaged or replaced."""
    sent_at: str = ""
    """The sender's time, to compare the clocks."""
    digests: dict[str, str] = {}
    """Digests of the sender's definitions and secrets, by name, to compare the settings of both nodes."""


class PairBeat(msgspec.Struct, frozen=True, tag_field="t", tag="pair_beat"):
    """A heartbeat; not answered, because each node sends its own."""

    beat: PairHeartbeat
    position: StreamPosition = StreamPosition()
    """The newest numbers of the sender, so that the receiver can name those that are lost with the sender's disk."""


class PairAck(msgspec.Struct, frozen=True, tag_field="t", tag="pair_ack"):
    """The answer to a batch, a piece or the end of a snapshot, after the commit that stored it."""

    received: StreamPosition


class SnapshotEnd(msgspec.Struct, frozen=True, tag_field="t", tag="snapshot_end", kw_only=True):
    """All pieces were sent. The receiver has all changes of the sender up to this position."""

    epoch: Seq
    known: Seq
    until: StreamPosition


class DigestCheck(msgspec.Struct, frozen=True, tag_field="t", tag="digest_check", kw_only=True):
    """A digest of a range of the sender's rows, at its position."""

    kind: RowKind
    after: str
    until: str | None
    rows: int
    digest: str
    position: StreamPosition
    received: StreamPosition
    first: Seq = 0
    """The lowest number of the sender's notifications, for their kind; 0 if it has none."""


class DigestAnswer(msgspec.Struct, frozen=True, tag_field="t", tag="digest_answer"):
    """The result of comparing a range."""

    verdict: DigestVerdict


class PairRefusal(msgspec.Struct, frozen=True, tag_field="t", tag="pair_refusal"):
    """The message was rejected and nothing has changed; `known` and `received` say how the sender can continue."""

    code: str
    error: str
    known: Seq
    received: StreamPosition


class PairLeave(msgspec.Struct, frozen=True, tag_field="t", tag="pair_leave"):
    """The sender has handed over all its rows and leaves the pair; the receiver confirms it with the same message and
    continues as a single site."""


class PairHandover(msgspec.Struct, frozen=True, tag_field="t", tag="pair_handover"):
    """The leader of this epoch has stopped and gave the epoch back: the receiver takes the next one."""

    epoch: Seq


class PairSwitch(msgspec.Struct, frozen=True, tag_field="t", tag="pair_switch"):
    """The standby asks the leader to hand over."""


PairMessage = (
    PairHello
    | PairBeat
    | ChangeBatch
    | SnapshotPiece
    | SnapshotEnd
    | PairAck
    | DigestCheck
    | DigestAnswer
    | PairRefusal
    | PairLeave
    | PairHandover
    | PairSwitch
)


class PairJoin(msgspec.Struct, frozen=True, tag_field="t", tag="pair_join", kw_only=True):
    """A machine with the one-time code asks to become the other node."""

    protocol: int
    version: str
    code: str
    site: str
    node: int
    certificate: str
    """PEM; pinned by the receiver from now on."""
    listen: str
    """The address at which the receiver reaches it."""


class PairJoined(msgspec.Struct, frozen=True, tag_field="t", tag="pair_joined"):
    """The receiver is the other node now; the incarnation of its buffer is the pair's."""

    incarnation: str


class PairJoinRefusal(msgspec.Struct, frozen=True, tag_field="t", tag="pair_join_refusal"):
    """The reason for which the machine does not become the other node."""

    code: str
    error: str


JoinMessage = PairJoin | PairJoined | PairJoinRefusal


def decode_join(data: bytes) -> JoinMessage:
    """Decode a message of the exchange of certificates. Raises InvalidInput with the reason."""
    message: JoinMessage = decode_as(data, JoinMessage)  # type: ignore[arg-type]
    return message


_message: msgspec.json.Decoder[PairMessage] = msgspec.json.Decoder(PairMessage)


def decode_pair(data: bytes) -> PairMessage:
    """Decode a message of the other node.

    Raises Conflict for an operation that this version does not know, and InvalidInput for any other invalid message.
    """
    try:
        check_values(data)
        message = decode_written(_message, data)
        if message is None:
            message = decode_as(data, PairMessage)  # type: ignore[arg-type]
    except InvalidInput:
        operation = _operation(data)
        if operation is None or operation in _OPERATIONS:
            raise
        raise Conflict(
            "pair.version", f"this version does not know the operation {operation[:40]!r}", hint="upgrade this node"
        ) from None
    return message


class _Operation(msgspec.Struct):
    t: str


_OPERATIONS = frozenset(kind.__struct_config__.tag for kind in get_args(PairMessage))


def _operation(data: bytes) -> str | None:
    try:
        return msgspec.json.decode(data, type=_Operation).t
    except (msgspec.DecodeError, RecursionError):
        return None
