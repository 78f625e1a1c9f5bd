"""The conversation without the socket: what is in flight, what was answered, how much may be sent next.

Theory of operation. Each Submit has a number, and stays in flight until the answer of that number, or until the
connection ends; then whoever sent it still has it, and sends it again on the next connection, under a new number. An
answer to a number that is not in flight is late, and ignored: central absorbs what it gets twice.

How much goes into a batch follows what the line carries: a batch should pass within `PASS_S`, the time that central had
it not counted. It starts small, doubles while batches pass quickly, halves when one takes longer, and drops to a
quarter when one is lost. The rate seen so far also says how long to wait for an answer, so that one large item on a
slow line is waited for, and a dead central on a fast one is not; and whether to compress, which pays where bytes take
longer than the work on them.

Credits are central's: how many items may be on the way to it. Where there are many, a batch takes half of them at most,
so that the next can travel while central stores this one. A sender without any may still send one item, so that a grant
which was lost cannot silence it for ever; when to do so is up to whoever paces the sender.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fieldpost.link.messages import FRAME_BYTES_MAX, ITEMS_MAX, ZLIB, Ack, Hello, Item, Refusal, Submit

PASS_S = 5.0
"""How long a batch should take at most, from the first byte to its answer."""
ANSWER_S = 25.0
"""How long an answer may take beside the time that the bytes need."""
FIRST_BYTES = 16 * 1024
BYTES_MIN = 1024
BYTES_MAX = FRAME_BYTES_MAX // 2
RATE_FLOOR = 500.0
"""Bytes per second that are assumed of a line on which nothing has passed yet."""
IN_FLIGHT_MAX = 4
"""So many messages are on the way at a time at most; more would only wait elsewhere."""
SMALL_ITEMS = 100
"""Credits up to here are used for one batch: in halves it would cost more than waiting for its answer."""
COMPRESSED_BELOW = 2 * 1024 * 1024.0
"""Bytes per second. A slower line gains from compression: at 2 MiB/s, 280 kB of varied text save 80 ms for 7 ms of
work at both ends, on loopback they would only cost these."""
COMPRESSED_FROM = 1024
"""Bytes; what is smaller goes in one packet or two anyway."""


@dataclass(frozen=True, slots=True)
class Room:
    """How much the next Submit may hold; one item is always allowed whatever its size. No items: not yet."""

    items: int
    bytes: int


@dataclass(frozen=True, slots=True)
class InFlight:
    """A Submit that has no answer yet."""

    submit: Submit
    size: int
    sent_at: float
    wire_size: int
    """In bytes, as it travels."""


class LinkSession:
    """One sender's side; it outlives connections, since what it learnt of the line holds for the next one too."""

    def __init__(self, items_max: int = ITEMS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._items_max = items_max
        self._bytes_max = bytes_max
        self._bytes = min(FIRST_BYTES, bytes_max)
        self._rate: float | None = None
        self._seq = 0
        self._credits = ITEMS_MAX
        self._in_flight: dict[int, InFlight] = {}
        self._answered_at = 0.0
        self._is_zlib_accepted = False

    @property
    def in_flight(self) -> tuple[InFlight, ...]:
        return tuple(self._in_flight.values())

    @property
    def credits(self) -> int:
        return self._credits

    def room(self) -> Room:
        """How much may be sent now, beside what is in flight."""
        left = self._credits - sum(len(sent.submit.items) for sent in self._in_flight.values())
        batch = min(self._items_max, max(self._credits // 2, min(self._credits, SMALL_ITEMS)))
        if self._in_flight and (len(self._in_flight) >= IN_FLIGHT_MAX or left < max(1, batch // 2)):
            return Room(0, self._bytes)
        return Room(max(1, min(batch, left)), self._bytes)

    def greeted(self, hello: Hello) -> None:
        """A connection begins; what central grants and understands starts anew."""
        self._credits = max(0, hello.credits)
        self._is_zlib_accepted = ZLIB in hello.accepts

    def submit(self, items: Sequence[Item], more: bool | None = None) -> Submit:
        """The next message, numbered."""
        self._seq += 1
        return Submit(seq=self._seq, items=tuple(items), more=more)

    def is_compression_worth(self, size: int) -> bool:
        """Whether a message of so many bytes had better be compressed on this line."""
        is_slow = self._rate is None or self._rate < COMPRESSED_BELOW
        return self._is_zlib_accepted and is_slow and size >= COMPRESSED_FROM

    def sent(self, submit: Submit, size: int, now: float, wire_size: int | None = None) -> None:
        """The message, of so many bytes, is on its way. `now` is monotonic, here and below."""
        self._in_flight[submit.seq] = InFlight(submit, size, now, size if wire_size is None else wire_size)

    def answered(self, answer: Ack | Refusal, now: float) -> InFlight | None:
        """What the answer is to, or None when it is to nothing that is in flight."""
        if isinstance(answer, Ack):
            self._credits = max(0, answer.credits)
        sent = None if answer.seq is None else self._in_flight.pop(answer.seq, None)
        if sent is not None:
            self._learn(sent, now, answer.took_s if isinstance(answer, Ack) else 0.0)
        return sent

    def lost(self) -> tuple[InFlight, ...]:
        """The connection ended: what has no answer, oldest first, is to be sent again."""
        lost = tuple(self._in_flight.values())
        self._in_flight.clear()
        if lost:
            self._bytes = max(BYTES_MIN, self._bytes // 4)
            # A rate that was true once must not shorten the patience with a line that has become slower.
            self._rate = None
        return lost

    def patience_s(self, size: int) -> float:
        """How long to wait for the answer to a message of so many bytes before the line counts as dead."""
        rate = RATE_FLOOR if self._rate is None else max(RATE_FLOOR, self._rate / 4)
        ahead = sum(sent.wire_size for sent in self._in_flight.values())
        return ANSWER_S + (ahead + size) / rate

    def _learn(self, sent: InFlight, now: float, central_s: float) -> None:
        passed_s = now - sent.sent_at - central_s
        # What was sent before it had passed when its answer came: only from then on the line was this message's.
        line_s = now - max(sent.sent_at, self._answered_at) - central_s
        rate = sent.wire_size / max(line_s, 0.001)
        self._answered_at = now
        if passed_s > PASS_S:
            self._bytes = max(BYTES_MIN, self._bytes // 2)
            self._rate = rate
            return
        # A small message says only that the line carries at least so much.
        self._rate = rate if self._rate is None else max(rate, self._rate)
        if line_s < PASS_S / 4 and sent.size > self._bytes // 2:
            self._bytes = min(self._bytes_max, self._bytes * 2)
