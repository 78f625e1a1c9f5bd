"""When an attempt has to end, whatever it waits for."""

from dataclasses import dataclass

from fieldpost.clock import Clock


@dataclass(frozen=True, slots=True)
class AttemptDeadline:
    """`until` is a time by the clock's monotonic."""

    clock: Clock
    until: float

    def at_most(self, timeout_s: float) -> float:
        """This long, or what is left."""
        return min(timeout_s, max(0.0, self.until - self.clock.monotonic()))
