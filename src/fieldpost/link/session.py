"""Flow control of a sender, without the socket: submits in flight, batch size, credits and timeouts.

Theory of operation. Each Submit has a number and is in flight until its answer arrives or the connection ends. After
that the sender still has the items and submits them again on the next connection, under a new number. An answer to a
number that is not in flight is late and ignored: central deduplicates.

The batch size follows the bandwidth of the line: a batch should pass within `PASS_S`, not counting central's own time.
It starts small, doubles while batches pass quickly, halves when one takes longer, and drops to a quarter when one is
lost. The measured rate also determines the timeout, long for a large item on a slow line and short for a dead central
on a fast one, and whether to compress, which pays if sending the bytes takes longer than compressing them.

Credits come from central: how many items may be in flight. If there are many, a batch takes at most half of them, so
that the next one travels while central stores this one. A sender without credits may still send one item, so that a
lost grant cannot block it forever; the caller decides when.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fieldpost.link.messages import FRAME_BYTES_MAX, ITEMS_MAX, ZLIB, Ack, Hello, Item, Refusal, Submit

PASS_S = 5.0
"""The target time of a batch, from its first byte to its answer."""
ANSWER_S = 25.0
"""The timeout of an answer, in addition to the time that its bytes take."""
FIRST_BYTES = 16 * 1024
BYTES_MIN = 1024
BYTES_MAX = FRAME_BYTES_MAX // 2
RATE_FLOOR = 500.0
"""The assumed rate of a line before the first measurement, in bytes per second."""
IN_FLIGHT_MAX = 4
"""The most submits in flight; more would only queue on the way."""
SMALL_ITEMS = 100
"""Up to this many credits go into one batch: two halves would cost more than waiting for the answer."""
COMPRESSED_BELOW = 2 * 1024 * 1024.0
"""Bytes per second. A slower line gains from compression: at 2 MiB/s, 280 kB of varied text save 80 ms for 7 ms of
CPU at both peers; on loopback compression would only cost."""
COMPRESSED_FROM = 1024
"""Bytes; a smaller message fits into one or two packets anyway."""


@dataclass(frozen=True, slots=True)
class Room:
    """The limits of the next Submit; a single item may exceed `bytes`. Zero items: wait."""

    items: int
    bytes: int


@dataclass(frozen=True, slots=True)
class InFlight:
    """A Submit that has no answer yet."""

    submit: Submit
    size: int
    sent_at: float
    wire_size: int
    """The size on the line, in bytes."""


class LinkSession:
    """The state of one sender. It outlives connections, because its measurements hold for the next one too."""

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
        """How much may be sent now, in addition to the submits in flight."""
        left = self._credits - sum(len(sent.submit.items) for sent in self._in_flight.values())
        batch = min(self._items_max, max(self._credits // 2, min(self._credits, SMALL_ITEMS)))
        if self._in_flight and (len(self._in_flight) >= IN_FLIGHT_MAX or left < max(1, batch // 2)):
            return Room(0, self._bytes)
        return Room(max(1, min(batch, left)), self._bytes)

    def greeted(self, hello: Hello) -> None:
        """Reset credits and encodings from the greeting of a new connection."""
        self._credits = max(0, hello.credits)
        self._is_zlib_accepted = ZLIB in hello.accepts

    def submit(self, items: Sequence[Item], more: bool | None = None) -> Submit:
        """The next message, numbered."""
        self._seq += 1
        return Submit(seq=self._seq, items=tuple(items), more=more)

    def is_compression_worth(self, size: int) -> bool:
        """Whether to compress a message of this size on this line."""
        is_slow = self._rate is None or self._rate < COMPRESSED_BELOW
        return self._is_zlib_accepted and is_slow and size >= COMPRESSED_FROM

    def sent(self, submit: Submit, size: int, now: float, wire_size: int | None = None) -> None:
        """Record a message of `size` bytes as in flight. `now` is monotonic, here and below."""
        self._in_flight[submit.seq] = InFlight(submit, size, now, size if wire_size is None else wire_size)

    def answered(self, answer: Ack | Refusal, now: float) -> InFlight | None:
        """Settle the submit that this answers, or None if it is not in flight."""
        if isinstance(answer, Ack):
            self._credits = max(0, answer.credits)
        sent = None if answer.seq is None else self._in_flight.pop(answer.seq, None)
        if sent is not None:
            self._learn(sent, now, answer.took_s if isinstance(answer, Ack) else 0.0)
        return sent

    def lost(self) -> tuple[InFlight, ...]:
        """Clear the submits in flight, because the connection ended, and return them, oldest first, to send again."""
        lost = tuple(self._in_flight.values())
        self._in_flight.clear()
        if lost:
            self._bytes = max(BYTES_MIN, self._bytes // 4)
            # The old rate must not shorten the timeout on a line that has become slower.
            self._rate = None
        return lost

    def patience_s(self, size: int) -> float:
        """The timeout of the answer to a message of this size; after it the line counts as dead."""
        rate = RATE_FLOOR if self._rate is None else max(RATE_FLOOR, self._rate / 4)
        ahead = sum(sent.wire_size for sent in self._in_flight.values())
        return ANSWER_S + (ahead + size) / rate

    def _learn(self, sent: InFlight, now: float, central_s: float) -> None:
        passed_s = now - sent.sent_at - central_s
        # The previous message occupied the line until its answer came.
        line_s = now - max(sent.sent_at, self._answered_at) - central_s
        rate = sent.wire_size / max(line_s, 0.001)
        self._answered_at = now
        if passed_s > PASS_S:
            self._bytes = max(BYTES_MIN, self._bytes // 2)
            self._rate = rate
            return
        # A small message gives only a lower bound of the rate.
        self._rate = rate if self._rate is None else max(rate, self._rate)
        if line_s < PASS_S / 4 and sent.size > self._bytes // 2:
            self._bytes = min(self._bytes_max, self._bytes * 2)
