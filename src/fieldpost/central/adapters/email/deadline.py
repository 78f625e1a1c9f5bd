"""The deadline of an attempt."""

from dataclasses import dataclass

from fieldpost.clock import Clock


@dataclass(frozen=True, slots=True)
class AttemptDeadline:
    """`until` is a monotonic time of the clock."""

    clock: Clock
    until: float

    def at_most(self, timeout_s: float) -> float:
        """The timeout, or the remaining time if that is shorter."""
        return min(timeout_s, max(0.0, self.until - self.clock.monotonic()))
