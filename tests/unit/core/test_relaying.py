"""The relay's rules: verdicts, results, due times and parts of a batch."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.delivery import retry
from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.outbox import OutboxStatus
from fieldpost.core.events.relaying import (
    CHECK_FIRST,
    CHECK_MAX,
    GivenBack,
    NotPublished,
    Published,
    PublishVerdict,
    decide_row,
    next_check,
    row_status,
    split_by_bytes,
    status_of_unclaimed,
)
from fieldpost.core.events.result import EventState

POLICY = retry.parse("exponential:10s:0:2:1h", allow_no_limit=True)


@pytest.mark.req("DEC-53", "DEC-84")
@pytest.mark.parametrize(
    ("verdict", "retries", "change"),
    [
        (PublishVerdict("accepted", EventState.SENT), 0, Published(OutboxStatus.SENT, CHECK_FIRST)),
        (PublishVerdict("accepted", EventState.PROCESSING), 0, Published(OutboxStatus.PROCESSING, CHECK_FIRST)),
        (PublishVerdict("accepted"), 3, Published(OutboxStatus.PROCESSING, CHECK_FIRST)),
        (
            PublishVerdict("accepted", EventState.TEMPLATE_NOT_FOUND),
            0,
            Published(
                OutboxStatus.TEMPLATE_NOT_FOUND,
                CHECK_FIRST,
                "template.not_found: a matching route has no template",
            ),
        ),
        (PublishVerdict("accepted", EventState.FAILED), 0, Published(OutboxStatus.PROCESSING, CHECK_FIRST)),
        (PublishVerdict("duplicate"), 0, Published(OutboxStatus.PROCESSING, timedelta(0))),
        (
            PublishVerdict("rejected", None, "topic.unknown", "topic 'x' is not registered"),
            0,
            NotPublished("topic.unknown: topic 'x' is not registered", timedelta(seconds=10)),
        ),
        (
            PublishVerdict("unanswered", None, None, "timeout"),
            2,
            NotPublished("relay.unanswered: timeout", timedelta(seconds=40)),
        ),
        (PublishVerdict("later"), 0, GivenBack()),
        (PublishVerdict("a verdict of a later version"), 0, GivenBack()),
    ],
)
def test_a_verdict_changes_its_row(verdict: PublishVerdict, retries: int, change: object) -> None:
    assert decide_row(verdict, retries, POLICY, 0.0) == change


def test_a_policy_with_a_limit_ends() -> None:
    limited = retry.parse("fixed:5s:2")
    assert decide_row(PublishVerdict("unanswered"), 0, limited, 0.0) == NotPublished(
        "relay.unanswered: central did not answer", timedelta(seconds=5)
    )
    ended = decide_row(PublishVerdict("unanswered"), 1, limited, 0.0)
    assert isinstance(ended, NotPublished)
    assert ended.wait is None


@pytest.mark.dec("DEC-84")
@pytest.mark.parametrize("text", ["fixed:60s:0", "exponential:10s:0:2:1h"])
def test_no_limit_is_valid_for_the_relay_only(text: str) -> None:
    assert retry.parse(text, allow_no_limit=True).delay(10_000, 0.0) is not None
    with pytest.raises(InvalidInput):
        retry.parse(text)


@pytest.mark.req("DEC-30", "DEC-53")
@pytest.mark.parametrize(
    ("state", "current", "status"),
    [
        (EventState.SENT, OutboxStatus.FAILED, OutboxStatus.SENT),
        (EventState.FAILED, OutboxStatus.PROCESSING, OutboxStatus.FAILED),
        (EventState.PROCESSING, OutboxStatus.FAILED, OutboxStatus.PROCESSING),
        (EventState.TEMPLATE_NOT_FOUND, OutboxStatus.PROCESSING, OutboxStatus.TEMPLATE_NOT_FOUND),
        (EventState.PURGED, OutboxStatus.PROCESSING, OutboxStatus.SENT),
        (EventState.PURGED, OutboxStatus.FAILED, OutboxStatus.FAILED),
        (EventState.UNKNOWN, OutboxStatus.PROCESSING, None),
    ],
)
def test_a_published_row_has_the_status_of_its_event(
    state: EventState, current: OutboxStatus, status: OutboxStatus | None
) -> None:
    assert row_status(state, current) is status


def test_an_unclaimed_row_is_pending_until_its_first_failure() -> None:
    assert [status_of_unclaimed(retries) for retries in (0, 1, 9)] == ["PENDING", "FAILED", "FAILED"]


def test_a_row_that_stays_open_is_queried_less_and_less_often() -> None:
    ages = [0, 61, 300, 7200]
    assert [next_check(timedelta(seconds=age)).total_seconds() for age in ages] == [60, 61, 300, 3600]
    assert next_check(timedelta(days=9)) == CHECK_MAX


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 100), st.integers(1, 10))
def test_parts_cover_a_batch_in_order_within_both_limits(sizes: list[int], bytes_max: int, items_max: int) -> None:
    parts = split_by_bytes(sizes, bytes_max, items_max)
    assert [number for part in parts for number in part] == list(range(len(sizes)))
    for part in parts:
        assert len(part) <= items_max
        assert len(part) == 1 or sum(sizes[number] for number in part) <= bytes_max
