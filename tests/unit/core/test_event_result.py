"""The state of an event from its notifications: of several results the first that applies wins."""

import pytest

from fieldpost.core.events.result import EventState, event_state
from fieldpost.core.notification import Status


@pytest.mark.dec("DEC-84")
@pytest.mark.parametrize(
    ("statuses", "lacks_template", "state"),
    [
        ((), False, EventState.SENT),
        (("delivered",), False, EventState.SENT),
        (("delivered", "pending"), False, EventState.PROCESSING),
        (("delivered", "retrying"), False, EventState.PROCESSING),
        ((), True, EventState.TEMPLATE_NOT_FOUND),
        (("delivered", "pending"), True, EventState.TEMPLATE_NOT_FOUND),
        (("parked", "pending", "delivered"), True, EventState.FAILED),
        (("discarded", "delivered"), False, EventState.FAILED),
    ],
)
def test_the_first_result_that_applies_wins(statuses: tuple[str, ...], lacks_template: bool, state: EventState) -> None:
    counts = {Status(status): 1 for status in statuses}
    assert event_state(counts, len(statuses), lacks_template=lacks_template) is state


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        ({}, EventState.PURGED),
        ({Status.DELIVERED: 1}, EventState.SENT),
        ({Status.PARKED: 1}, EventState.FAILED),
        ({Status.PENDING: 1}, EventState.PROCESSING),
    ],
)
def test_result_after_a_purge_follows_the_remaining_notifications(counts: dict[Status, int], state: EventState) -> None:
    assert event_state(counts, 3) is state
