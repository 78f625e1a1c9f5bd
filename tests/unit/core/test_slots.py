"""Shares of slots: what a key may take, and when more."""

from collections import Counter

import pytest

from fieldpost.core.delivery.slots import SlotLimits, SlotUse, extra_keys, extra_limit, last_in_walk

LIMITS = SlotLimits(64, 8)


@pytest.mark.req("DEC-74")
@pytest.mark.parametrize(
    ("busy", "claimed", "waiting", "slow", "more"),
    [
        ({}, 8, {"a"}, (), 40),
        ({"a": 8}, 0, {"a"}, (), 40),
        ({"a": 48}, 0, {"a"}, (), 0),
        ({"a": 47}, 0, {"a"}, (), 1),
        ({"a": 40, "b": 8}, 0, {"a"}, (), 0),
        ({"a": 8}, 0, {"a", "b"}, (), 0),
        ({"a": 8}, 0, set(), (), 0),
        ({"a": 8}, 0, {"a"}, {"a"}, 0),
        ({"a": 8, "b": 1}, 0, {"a"}, {"b"}, 39),
    ],
    ids=[
        *("alone", "alone at its share", "three quarters taken", "one left", "others count too", "another waits"),
        *("nothing waits", "slow", "another is slow"),
    ],
)
def test_a_key_takes_more_than_its_share_only_alone_and_up_to_three_quarters(
    busy: dict[str, int], claimed: int, waiting: set[str], slow: set[str], more: int
) -> None:
    use = SlotUse(busy=Counter(busy), slow=set(slow))
    assert extra_limit(use, LIMITS, claimed, use.free(LIMITS), waiting) == more


@pytest.mark.req("DEC-74")
def test_only_keys_that_used_up_their_share_may_have_more_rows() -> None:
    use = SlotUse(busy=Counter(a=6, b=8, c=9, d=7))
    assert extra_keys(use, LIMITS, {"a": 2, "d": 0}, excluded={"c"}) == ["a", "b"]


@pytest.mark.req("DEC-47", "DEC-74")
def test_long_attempts_free_their_slots_up_to_the_share_of_a_key_and_the_size_of_the_pool() -> None:
    assert SlotUse(long=Counter(a=7)).may_move("a", LIMITS)
    assert not SlotUse(long=Counter(a=8)).may_move("a", LIMITS), "its share of long attempts"
    assert SlotUse(long=Counter(a=8)).may_move("b", LIMITS)
    full = Counter({f"key-{number}": 8 for number in range(8)})
    assert not SlotUse(long=full).may_move("b", LIMITS), "as many long attempts as there are slots"


@pytest.mark.req("DEC-09")
@pytest.mark.parametrize(
    ("keys", "after", "last"),
    [("abc", "", "c"), ("cde", "b", "e"), ("dab", "c", "b"), ("ab", "b", "b"), ("c", "c", "c")],
)
def test_a_walk_goes_to_the_end_and_on_from_the_start(keys: str, after: str, last: str) -> None:
    assert last_in_walk(set(keys), after) == last
