"""Verification of receivers, readable topics, and secrets that must not move to another place."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.delivery.destination import check_destination, origin_of
from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.core.events.audience import check_readable, may_read
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.subscription import (
    Subscription,
    SubscriptionState,
    awaiting_test,
    in_state,
    passed_test,
)
from fieldpost.core.events.topic import Topic

NOW = datetime(2026, 11, 16, tzinfo=UTC)
STEPS = (*SubscriptionState, "url", "test")


def moved(one: Subscription, step: SubscriptionState | str) -> Subscription:
    """After a step: into a state, another URL by a subscriber, or a test that was answered."""
    if step == "url":
        return awaiting_test(one, by="dora", now=NOW)
    if step == "test":
        return passed_test(one, by="dora", now=NOW)
    return in_state(one, SubscriptionState(step), by="dora", reason=None, now=NOW)


@pytest.mark.dec("DEC-81")
@given(st.lists(st.sampled_from(STEPS), max_size=12))
def test_after_another_url_only_a_test_makes_a_subscription_active(steps: list[SubscriptionState | str]) -> None:
    one = awaiting_test(Subscription(subscription_id="1", name="s", owner="o", filter=()), by="dora", now=NOW)
    is_tested = False
    for step in steps:
        try:
            one = moved(one, step)
        except Conflict:
            continue
        is_tested = {"url": False, "test": True}.get(step, is_tested)
        assert one.is_verified == is_tested
        assert one.is_verified or one.state is not SubscriptionState.ACTIVE
        assert one.state is not SubscriptionState.UNVERIFIED or one.hold_reason


@pytest.mark.parametrize(
    ("owners", "is_readable"), [((), False), (("*",), True), (("acme",), True), (("acm", "acme2"), False)]
)
@pytest.mark.dec("DEC-81")
def test_a_topic_is_read_by_the_owners_that_it_names(owners: tuple[str, ...], is_readable: bool) -> None:
    topic = Topic(name="orders", owners=owners)
    assert may_read("acme", topic) == is_readable
    named = (FilterEntry(topic="o*"), FilterEntry(topic="fieldpost.subscription.blocked"), FilterEntry(topic="orders"))
    check_readable(named[:2], "acme", [topic])
    if is_readable:
        check_readable(named, "acme", [topic])
        return
    with pytest.raises(InvalidInput) as refused:
        check_readable(named, "acme", [topic])
    assert refused.value.field == "filter[2].topic"


@pytest.mark.parametrize(
    ("url", "is_elsewhere"),
    [
        ("https://a.example/other?x=1", False),
        ("https://A.EXAMPLE/in", False),
        ("https://b.example/in", True),
        ("http://a.example/in", True),
        ("https://a.example:8443/in", True),
        (None, True),
    ],
)
def test_a_secret_moves_with_scheme_host_and_port(url: str | None, is_elsewhere: bool) -> None:
    before, after = {"url": origin_of("https://a.example/in")}, {"url": origin_of(url)}
    check_destination(before, after, kept=())
    if not is_elsewhere:
        check_destination(before, after, kept={"auth_secret"})
        return
    with pytest.raises(InvalidInput) as refused:
        check_destination(before, after, kept={"auth_secret"})
    assert (refused.value.code, refused.value.field) == ("settings.secret_again", "secrets.auth_secret")
