"""Forecast of the turn of a row that waits for the rates of its list and its channel.

Theory of operation. The rows ahead are let through in their order, as `take_turns` does: critical ones first, then by
due time, each at the first time that its list and the channel both allow. A list that waits for its own rate lets the
others pass. Neither rate alone gives the answer, so the queues are simulated. Only the number of rows ahead in
each queue and the due times of the first and the last are known; the others are taken as evenly spread. Where there are
many, one step represents several rows of a queue, so that a forecast always takes about as long.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from fieldpost.core.delivery.rate import Rate, turn

STEPS_MAX = 2000

RateState = tuple[Rate, datetime | None]
"""A rate, and when its next delivery may start."""


@dataclass(frozen=True, slots=True)
class RowsAhead:
    """The rows of one queue that go before the row in question."""

    key: str
    """The delivery key of the list."""
    is_first: bool
    """Whether they are critical."""
    head: datetime
    """When the first of them became due."""
    tail: datetime
    """When the last of them did."""
    count: int


_Step = tuple[bool, datetime, float]
"""Its position among all, and how many rows it represents; the row in question represents none."""


def forecast_turn(
    key: str,
    ahead: Sequence[RowsAhead],
    rates: Mapping[str, RateState],
    channel: RateState | None,
    now: datetime,
) -> datetime:
    """When the row behind all of these gets its turn, in the queue of the list `key`.

    `rates` are the lists' own, by delivery key. The rates are taken as used fully until then.
    """
    steps = _steps(ahead)
    steps.setdefault(key, []).insert(0, (True, datetime.max.replace(tzinfo=now.tzinfo), 0))
    states = dict(rates)
    at = now
    waiting = [(_turn(states.get(one), now), one) for one in steps]
    heapq.heapify(waiting)
    ready: list[tuple[_Step, str]] = []
    while True:
        at = max(at, _turn(channel, at)) if channel is not None else at
        if not ready:
            at = max(at, waiting[0][0])
        while waiting and waiting[0][0] <= at:
            one = heapq.heappop(waiting)[1]
            heapq.heappush(ready, (steps[one].pop(), one))
        (_, _, rows), one = heapq.heappop(ready)
        if not rows:
            return at
        channel = _spend(channel, rows, at)
        if (own := _spend(states.get(one), rows, at)) is not None:
            states[one] = own
        if steps[one]:
            heapq.heappush(waiting, (_turn(own, at), one))


def _steps(ahead: Sequence[RowsAhead]) -> dict[str, list[_Step]]:
    """The steps of each list, the last one first."""
    rows_per_step = max(1.0, sum(queue.count for queue in ahead) / STEPS_MAX)
    steps: dict[str, list[_Step]] = {}
    for queue in ahead:
        count = min(queue.count, max(1, round(queue.count / rows_per_step)))
        spread = (queue.tail - queue.head) / max(1, count - 1)
        steps.setdefault(queue.key, []).extend(
            (not queue.is_first, queue.head + number * spread, queue.count / count) for number in range(count)
        )
    return {key: sorted(found, reverse=True) for key, found in steps.items()}


def _turn(state: RateState | None, at: datetime) -> datetime:
    return at if state is None else turn(*state, 0, at)


def _spend(state: RateState | None, rows: float, at: datetime) -> RateState | None:
    if state is None:
        return None
    rate, next_at = state
    return rate, max(next_at or at, at) + rows * rate.interval
