"""The lag of the other node's copy: how many changes it lacks, and the age of the oldest of them.

Changes carry no time. So the positions of this node are sampled, and the lag in seconds is the age of the oldest sample
that the other node has not reached.
"""

from collections import deque

from fieldpost.link.pair_rows import StreamPosition, has_reached

SAMPLES_MAX = 600


def missing_numbers(received: StreamPosition, announced: StreamPosition) -> str:
    """The numbers that a node has announced and not handed over, as a phrase; empty if it has handed over all."""
    streams = (
        ("notifications", received.messages, announced.messages),
        ("changes", received.changes, announced.changes),
    )
    return " and ".join(f"{name} {have + 1} to {last}" for name, have, last in streams if last > have)


class LagClock:
    """The age of the oldest change that the other node lacks."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, StreamPosition]] = deque()

    def sample(self, position: StreamPosition, acked: StreamPosition, now: float) -> float:
        """Sample both positions now; returns the lag in seconds."""
        while self._samples and has_reached(acked, self._samples[0][1]):
            self._samples.popleft()
        if has_reached(acked, position):
            self._samples.clear()
            return 0.0
        if not self._samples or (self._samples[-1][1] != position and len(self._samples) < SAMPLES_MAX):
            self._samples.append((now, position))
        return now - self._samples[0][0]
