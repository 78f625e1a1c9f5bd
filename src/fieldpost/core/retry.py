"""Retry policies: when the next attempt is due, and when to stop.

`delay(attempt_count, chance)` is asked after the attempt_count-th transient failure of a cycle and answers how long to
wait, or None when the policy is used up. `attempts_max` counts attempts in total: with 3, the third failure parks.
Jitter only ever adds, so that a policy never promises an earlier attempt than it makes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

ATTEMPTS_MAX_DEFAULT = 10
RETRY_DELAY_S_DEFAULT = 60.0
_DELAY_MAX = timedelta(days=366)


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same delay each time."""

    wait: timedelta
    attempts_max: int
    jitter: float = 0.0

    def delay(self, attempt_count: int, chance: float) -> timedelta | None:
        if attempt_count >= self.attempts_max:
            return None
        return _with_jitter(self.wait, self.jitter, chance)


@dataclass(frozen=True, slots=True)
class Schedule:
    """One delay per failure, in order; used up after the last."""

    waits: tuple[timedelta, ...]
    jitter: float = 0.0

    def delay(self, attempt_count: int, chance: float) -> timedelta | None:
        if attempt_count > len(self.waits):
            return None
        return _with_jitter(self.waits[attempt_count - 1], self.jitter, chance)


@dataclass(frozen=True, slots=True)
class Exponential:
    """Each delay is `factor` times the one before, up to `wait_max`."""

    wait: timedelta
    attempts_max: int
    factor: float = 2.0
    wait_max: timedelta = timedelta(hours=1)
    jitter: float = 0.0

    def delay(self, attempt_count: int, chance: float) -> timedelta | None:
        if attempt_count >= self.attempts_max:
            return None
        # Grown step by step: a power of a large count would overflow long after the cap was reached.
        wait = self.wait
        for _ in range(attempt_count - 1):
            if wait >= self.wait_max:
                break
            wait *= self.factor
        return _with_jitter(min(wait, self.wait_max), self.jitter, chance)


RetryPolicy = Fixed | Schedule | Exponential


def fixed_from_settings(attempts_max: object, retry_delay_s: object) -> tuple[Fixed, Sequence[str]]:
    """The fixed policy of a channel's settings, and the settings that had to be replaced.

    A bad value in a stored row must never cause parking without a retry, so it is clamped where the policy is read.
    """
    clamped = []
    if not isinstance(attempts_max, int) or attempts_max <= 0:
        clamped.append("max_retries")
        attempts_max = ATTEMPTS_MAX_DEFAULT
    if not isinstance(retry_delay_s, int | float) or not 0 < retry_delay_s <= _DELAY_MAX.total_seconds():
        clamped.append("retry_delay_s")
        retry_delay_s = RETRY_DELAY_S_DEFAULT
    return Fixed(timedelta(seconds=retry_delay_s), attempts_max), clamped


def _with_jitter(wait: timedelta, jitter: float, chance: float) -> timedelta:
    return wait + wait * (jitter * chance) if jitter else wait
