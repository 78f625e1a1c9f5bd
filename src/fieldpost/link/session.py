"""The conversation without the socket: what is in flight, what was answered, how much may be sent next.

Theory of operation. Each Submit has a number, and stays in flight until the answer of that number, or until the
connection ends; then whoever sent it still has it, and sends it again on the next connection, under a new number. An
answer to a number that is not in flight is late, and ignored: central absorbs what it gets twice.

How much goes into a batch follows what the line carries: a batch should pass within `PASS_S`. It starts small, doubles
while batches pass quickly, halves when one takes longer, and drops to a quarter when one is lost. The rate seen so far
also says how long to wait for an answer, so that one large item on a slow line is waited for, and a dead central on a
fast one is not.

Credits are central's: how many items it takes before it says more. A sender without any may still send one item, so
that a grant which was lost cannot silence it for ever; when to do so is up to whoever paces the sender.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fieldpost.link.messages import FRAME_BYTES_MAX, ITEMS_MAX, Ack, Hello, Item, Refusal, Submit

PASS_S = 5.0
"""How long a batch should take at most, from the first byte to its answer."""
ANSWER_S = 25.0
"""How long an answer may take beside the time that the bytes need."""
FIRST_BYTES = 16 * 1024
BYTES_MIN = 1024
BYTES_MAX = FRAME_BYTES_MAX // 2
RATE_FLOOR = 500.0
"""Bytes per second that are assumed of a line on which nothing has passed yet."""


@dataclass(frozen=True, slots=True)
class Room:
    """How much the next Submit may hold; one item is always allowed whatever its size."""

    items: int
    bytes: int


@dataclass(frozen=True, slots=True)
class InFlight:
    """A Submit that has no answer yet."""

    submit: Submit
    size: int
    sent_at: float


class Session:
    """One sender's side; it outlives connections, since what it learnt of the line holds for the next one too."""

    def __init__(self, items_max: int = ITEMS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._items_max = items_max
        self._bytes_max = bytes_max
        self._bytes = min(FIRST_BYTES, bytes_max)
        self._rate: float | None = None
        self._seq = 0
        self._credits = ITEMS_MAX
        self._in_flight: dict[int, InFlight] = {}

    @property
    def in_flight(self) -> tuple[InFlight, ...]:
        return tuple(self._in_flight.values())

    @property
    def credits(self) -> int:
        return self._credits

    def room(self) -> Room:
        """How much may be sent now, to what is in flight besides."""
        waiting = sum(len(sent.submit.items) for sent in self._in_flight.values())
        return Room(max(1, min(self._items_max, self._credits - waiting)), self._bytes)

    def greeted(self, hello: Hello) -> None:
        """A connection begins; what central grants starts anew."""
        self._credits = max(0, hello.credits)

    def submit(self, items: Sequence[Item]) -> Submit:
        """The next message, numbered."""
        self._seq += 1
        return Submit(seq=self._seq, items=tuple(items))

    def sent(self, submit: Submit, size: int, now: float) -> None:
        """The message, of so many bytes, is on its way. `now` is monotonic, here and below."""
        self._in_flight[submit.seq] = InFlight(submit, size, now)

    def answered(self, answer: Ack | Refusal, now: float) -> InFlight | None:
        """What the answer is to, or None when it is to nothing that is in flight."""
        if isinstance(answer, Ack):
            self._credits = max(0, answer.credits)
        sent = None if answer.seq is None else self._in_flight.pop(answer.seq, None)
        if sent is not None:
            self._learn(sent, now)
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
        return ANSWER_S + size / rate

    def _learn(self, sent: InFlight, now: float) -> None:
        took = max(now - sent.sent_at, 0.001)
        rate = sent.size / took
        if took > PASS_S:
            self._bytes = max(BYTES_MIN, self._bytes // 2)
            self._rate = rate
            return
        # A small message says only that the line carries at least so much.
        self._rate = rate if self._rate is None else max(rate, self._rate)
        if took < PASS_S / 4 and sent.size > self._bytes // 2:
            self._bytes = min(self._bytes_max, self._bytes * 2)
