"""The backlog of a channel: when the last waiting notification starts."""

from datetime import UTC, datetime, timedelta

import pytest

from fieldpost.core.delivery.backlog import Backlog, BacklogPause, backlog
from fieldpost.core.delivery.rate import parse_rate

AT = datetime(2026, 11, 18, 3, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
PER_SECOND = parse_rate("1/1s")


def of(*pauses: BacklogPause, rate: str | None = None, **waiting: int) -> Backlog:
    return backlog(
        rate=(parse_rate(rate), None) if rate else None,
        lists={name: (count, PER_SECOND if name.startswith("slow") else None, None) for name, count in waiting.items()},
        pauses=pauses,
        has_more=False,
        at=AT,
    )


def pause(seconds: int, list_name: str | None = None, target: str | None = None) -> BacklogPause:
    return BacklogPause(until=AT + seconds * SECOND, reason="429", list_name=list_name, target=target)


def end(found: Backlog) -> float | None:
    return None if found.empty_at is None else (found.empty_at - AT).total_seconds()


@pytest.mark.req("CHN-03")
def test_last_row_of_a_queue_starts_after_all_others_at_the_rate() -> None:
    assert (of().empty_at, of(slow=0).empty_at, of(other=3).empty_at) == (None, None, AT)
    assert end(of(slow=10)) == 9
    assert end(of(slow=10, slow_too=4)) == 9, "each list has its own rate"
    assert end(of(rate="1/2s", slow=10, other=5)) == 28, "fifteen share the rate of the channel"


@pytest.mark.req("CHN-02")
def test_pause_delays_only_its_own_list_or_channel() -> None:
    assert end(of(pause(60), slow=10)) == 69
    assert end(of(pause(60, "slow"), slow=10, slow_too=5)) == 69
    assert end(of(pause(60, "slow_too"), slow=10, slow_too=0)) == 9
    assert end(of(pause(60, "slow", "#ops"), slow=10)) == 9, "the list's other targets are served"
    assert end(of(pause(60, "slow"), rate="1/1s", slow=1, other=10)) == 60
    assert of(pause(0), pause(-5)).pauses == [], "over"


def test_the_pause_of_the_channel_and_the_longest_queue_come_first() -> None:
    found = of(pause(9, "slow"), pause(5), pause(7, "slow", "#ops"), slow=1, slow_too=2, unlimited=0)
    assert [(one.list_name, one.target) for one in found.pauses] == [(None, None), ("slow", None), ("slow", "#ops")]
    assert found.pause == pause(5)
    assert [(one.list_name, one.waiting) for one in found.lists] == [("slow_too", 2), ("slow", 1)]
