"""Shares of slots: what a key may take, and when more."""

from collections import Counter

import pytest

from fieldpost.core.delivery.slots import (
    SlotLimits,
    SlotUse,
    extra_keys,
    extra_limit,
    fair_share,
    last_in_walk,
    plan_shares,
    share_room,
)

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
def test_walk_continues_from_the_start_after_the_end(keys: str, after: str, last: str) -> None:
    assert last_in_walk(set(keys), after) == last


@pytest.mark.req("DEC-47")
@pytest.mark.parametrize(
    ("ready", "share"), [(0, 8), (1, 8), (25, 8), (26, 8), (29, 7), (100, 2), (199, 2), (200, 1), (5000, 1)]
)
def test_the_share_of_a_key_shrinks_as_more_keys_have_due_notifications(ready: int, share: int) -> None:
    assert fair_share(SlotLimits(200, 8), ready) == share
    assert share * max(ready, 1) >= min(200, 8 * max(ready, 1)), "no slot stays empty"


@pytest.mark.req("DEC-47")
@pytest.mark.parametrize(
    ("room", "after", "idle", "shares"),
    [
        (9, "", "", {"a": 3, "b": 3, "c": 3}),
        (4, "", "", {"a": 1, "b": 1, "c": 1}),
        (2, "", "", {"a": 1, "b": 1}),
        (2, "a", "", {"b": 1, "c": 1}),
        (2, "b", "", {"c": 1, "a": 1}),
        (2, "b", "c", {"a": 1, "b": 1}),
        (2, "", "abc", {"a": 1, "b": 1}),
        (0, "", "", {}),
        (-1, "", "", {}),
    ],
)
def test_keys_of_one_host_share_its_free_slots_or_take_turns(
    room: int, after: str, idle: str, shares: dict[str, int]
) -> None:
    assert share_room(["c", "a", "b"], room, after, set(idle)) == shares
    assert share_room([], room, after) == {}


@pytest.mark.req("DEC-47")
@pytest.mark.parametrize(
    ("busy", "most", "claims"), [(0, 3, 3), (2, 3, 3), (6, 3, 2), (8, 3, 0), (0, 20, 8), (3, 0, 0)]
)
def test_key_claims_no_more_than_its_host_has_free_slots(busy: int, most: int, claims: int) -> None:
    use = SlotUse(busy=Counter(a=busy))
    for share in plan_shares(use, LIMITS, 64, most={"a": most}):
        assert share.per_key - share.busy["a"] <= claims
    assert share.per_key - share.busy["a"] == claims


@pytest.mark.req("DEC-47")
def test_a_key_is_stalled_without_a_success_since_its_oldest_attempt_began() -> None:
    use = SlotUse(oldest={"young": 9.5, "hangs": 8.0, "works": 8.0, "worked": 8.0})
    worked = {"works": 9.8, "worked": 8.5, "young": 1.0}
    assert use.stalled(worked, 10.0) == {"hangs", "worked"}


@pytest.mark.req("DEC-47")
@pytest.mark.parametrize(("busy", "ample"), [(0, 100), (99, 1), (100, 0), (150, 0)])
def test_slots_are_scarce_once_half_of_them_are_in_use(busy: int, ample: int) -> None:
    assert SlotUse(busy=Counter(a=busy)).ample(SlotLimits(200, 8)) == ample


@pytest.mark.parametrize(
    ("busy", "unwritten", "free"), [(0, 64, 64), (60, 64, 4), (0, 100, 28), (10, 100, 18), (0, 128, 0), (0, 200, 0)]
)
def test_deliveries_whose_results_are_being_written_use_a_slot_only_beyond_the_number_of_slots(
    busy: int, unwritten: int, free: int
) -> None:
    use = SlotUse(busy=Counter(a=busy), unwritten=unwritten)
    assert use.free(LIMITS) == free
