"""Quick tries: repeats of a request within one attempt, in memory, within seconds.

They bridge a restart or a dropped connection without a row in the retry lane. The last try decides the outcome of the
attempt, which counts once on the schedule and on the breaker. No try follows a timeout, which has used up the patience
already, or a `Retry-After`, by which the receiver asks for more time than this.
"""

from dataclasses import dataclass
from enum import StrEnum

WINDOW_S = 8.0
"""No try starts later than this after the first."""
REPEATS_MAX = 10
BASE_S_MAX = 8.0
RETRIED_CODES = frozenset({408, 429})
"""Statuses worth a quick try besides 5xx."""


class TryPattern(StrEnum):
    EXPONENTIAL = "exponential"
    """Each wait is twice the one before."""
    LINEAR = "linear"
    """Each wait is longer by the base than the one before."""


@dataclass(frozen=True, slots=True)
class QuickTries:
    """How often a request is repeated within an attempt."""

    repeats: int = 4
    base_s: float = 0.5
    pattern: TryPattern = TryPattern.EXPONENTIAL

    def wait_s(self, repeat: int) -> float:
        """The wait before this repeat, counted from 1."""
        return self.base_s * (2 ** (repeat - 1) if self.pattern is TryPattern.EXPONENTIAL else repeat)


def next_try_s(policy: QuickTries, tries: int, elapsed_s: float) -> float | None:
    """How long to wait for the next try after this many tries, `elapsed_s` after the first began; None for no more."""
    if tries > policy.repeats:
        return None
    wait_s = policy.wait_s(tries)
    return wait_s if elapsed_s + wait_s <= WINDOW_S else None


def is_worth_a_try(status: int, extra_codes: frozenset[int]) -> bool:
    """Whether a response with this status is repeated quickly."""
    return status >= 500 or status in RETRIED_CODES or status in extra_codes
