"""Rates such as `20/1m`: at most 20 deliveries in any minute, over all nodes.

The state of a rate is one time, `next_at`, shared by all nodes (GCRA, the generic cell rate algorithm). Each delivery
moves it by one interval; a delivery may start while `next_at` is at most `burst - 1` intervals ahead of now. Interval
and burst are chosen so that no window of the period ever contains more deliveries than the rate allows.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from fieldpost.core.errors import InvalidInput

COUNT_MAX = 100_000
PERIOD_MAX = timedelta(days=1)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_RATE = re.compile(r"([0-9]{1,6})/([0-9]{1,5})([smhd])", re.ASCII)
_BURST_PART = 10


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `count` deliveries in any `period`."""

    count: int
    period: timedelta

    @property
    def burst(self) -> int:
        """How many deliveries may start at once after a quiet time: a tenth of the count."""
        return max(1, self.count // _BURST_PART)

    @property
    def interval(self) -> timedelta:
        """The time between deliveries at the full rate."""
        return self.period / (self.count - self.burst + 1)

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """The rate as it is written: `20/1m`."""
        seconds = round(self.period.total_seconds())
        size, unit = next((s, u) for u, s in reversed(_UNITS.items()) if seconds % s == 0)
        return f"{self.count}/{seconds // size}{unit}"


@dataclass(frozen=True, slots=True)
class Grant:
    """How many deliveries may start now, the state after them, and when the next one may start."""

    count: int
    next_at: datetime
    wait_until: datetime


def take(rate: Rate, next_at: datetime | None, wanted: int, now: datetime) -> Grant:
    """Take as many of the wanted deliveries as the rate allows now."""
    count = min(wanted, spare(rate, next_at, now))
    after = spend(rate, next_at, count, now)
    return Grant(count, after, turn(rate, after, 0, now))


def spare(rate: Rate, next_at: datetime | None, now: datetime) -> int:
    """How many deliveries may start now."""
    start, latest = _start(next_at, now), now + _slack(rate)
    return (latest - start) // rate.interval + 1 if start <= latest else 0


def spend(rate: Rate, next_at: datetime | None, count: int, now: datetime) -> datetime:
    """The state after this many deliveries."""
    return _start(next_at, now) + count * rate.interval


def turn(rate: Rate, next_at: datetime | None, ahead: int, now: datetime) -> datetime:
    """When a delivery may start that has this many others ahead of it."""
    return max(now, _start(next_at, now) + ahead * rate.interval - _slack(rate))


def _start(next_at: datetime | None, now: datetime) -> datetime:
    return now if next_at is None or next_at < now else next_at


def _slack(rate: Rate) -> timedelta:
    return (rate.burst - 1) * rate.interval


def parse_rate(value: object, field: str = "rate") -> Rate:
    """Parse a rate such as 20/1m; raises InvalidInput."""
    found = _RATE.fullmatch(value) if type(value) is str else None
    count = int(found[1]) if found else 0
    period = timedelta(seconds=int(found[2]) * _UNITS[found[3]]) if found else timedelta(0)
    if not 1 <= count <= COUNT_MAX or not timedelta(0) < period <= PERIOD_MAX:
        raise InvalidInput(
            "rate.invalid",
            f"{field} must be COUNT/PERIOD such as 20/1m, with a count of 1 to {COUNT_MAX} and a period of at most 1d",
            field=field,
        )
    return Rate(count, period)
