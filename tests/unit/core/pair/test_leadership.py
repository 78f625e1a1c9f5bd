"""The rules of leadership, one by one; the model in `tests/property/test_pair_leadership.py` combines them."""

from dataclasses import replace

import pytest

from fieldpost.core.pair.leadership import (
    CUT_OFF_S,
    Grounds,
    LeaseAnswer,
    PairHeartbeat,
    PairNode,
    Stamp,
    TakeoverPolicy,
    begin,
    grounds,
    hear,
    hear_central,
    heartbeat,
    invite,
    is_silent,
    should_take,
    step_down,
    take,
)

pytestmark = [pytest.mark.req("DEC-39")]


def leader(now: float = 0.0, policy: TakeoverPolicy = TakeoverPolicy.AVAILABILITY) -> PairNode:
    return begin(0, 70, now, policy, held=2, known=2, is_leading=True)


def standby(now: float = 0.0, policy: TakeoverPolicy = TakeoverPolicy.AVAILABILITY) -> PairNode:
    return begin(1, 71, now, policy, known=2)


def beat(sent: float, *, echo: float | None = None, age_s: float = 1e6, **changes: object) -> PairHeartbeat:
    """A heartbeat of the leader to the standby."""
    found = heartbeat(leader(), sent)
    stamp = None if echo is None else Stamp(71, echo)
    return replace(found, echo=stamp, central_age_s=age_s, **changes)  # type: ignore[arg-type]


def answer_of_standby(sent: float, echo: float, *, run: int = 70, age_s: float = 1e6) -> PairHeartbeat:
    return replace(heartbeat(standby(), sent), echo=Stamp(run, echo), central_age_s=age_s)


def granted(sent: float, epoch: int) -> LeaseAnswer:
    return LeaseAnswer(sent_at=sent, epoch=epoch, is_granted=True)


def refused(epoch: int) -> LeaseAnswer:
    return LeaseAnswer(sent_at=0.0, epoch=epoch, is_granted=False)


def without_central(node: PairNode, until: float) -> PairNode:
    """The node after its pair worked without central until this time."""
    return replace(node, echoed_at=until, heard_at=until, leader_at=until, central_at=until - 11)


def test_lease_lasts_ten_seconds_from_sending_the_request() -> None:
    node = hear_central(leader(), granted(1.0, 2), now=8.0)
    assert grounds(node, 10.9) is Grounds.LEASE
    assert grounds(node, 11.0) is None


def test_lease_of_a_new_epoch_counts_from_sending_too() -> None:
    node = hear_central(standby(), granted(6.0, 3), now=15.0)
    assert (node.held, node.is_leading) == (3, True)
    assert grounds(node, 15.9) is Grounds.LEASE
    assert grounds(node, 16.0) is None


def test_lease_renewed_through_the_other_node_counts_from_the_leaders_heartbeat() -> None:
    node = hear(leader(), replace(answer_of_standby(0.0, 1.0), relayed=Stamp(70, 1.0)), now=3.0)
    assert grounds(node, 10.9) is Grounds.LEASE


def test_answered_heartbeat_allows_execution_for_five_seconds_from_sending_it() -> None:
    node = hear(leader(), answer_of_standby(0.0, echo=3.0, age_s=0.0), now=7.5)
    assert grounds(node, 7.9) is Grounds.PEER
    assert grounds(node, 8.0) is None


def test_message_without_an_answer_to_ours_does_not_permit_execution() -> None:
    node = hear(leader(), replace(answer_of_standby(0.0, 0.0, age_s=0.0), echo=None), now=7.0)
    assert grounds(node, 7.1) is None


def test_answer_to_an_earlier_run_of_the_node_does_not_permit_execution() -> None:
    node = hear(leader(), answer_of_standby(0.0, echo=1e5, run=69, age_s=0.0), now=1.0)
    assert grounds(node, 1.0) is None


def test_node_that_starts_may_not_execute() -> None:
    assert grounds(leader(now=5.0), 5.0) is None


def test_answer_to_a_heartbeat_before_leading_does_not_permit_execution() -> None:
    node = hear(standby(), beat(1.0, echo=5.9, age_s=0.0), now=6.0)
    node = hear_central(replace(node, leader_at=0.0), granted(-4.0, 3), now=6.0)
    assert node.is_leading
    assert grounds(node, 6.1) is None


def test_standby_is_silent_after_five_seconds_without_a_leader() -> None:
    node = hear(standby(), beat(1.0), now=10.0)
    assert not is_silent(node, 14.9)
    assert is_silent(node, 15.0)


def test_node_that_does_not_lead_ends_no_silence() -> None:
    node = hear(standby(), beat(1.0, is_leading=False), now=10.0)
    assert is_silent(node, 10.0)


def test_grant_that_arrives_while_the_leader_is_heard_is_ignored() -> None:
    node = hear(standby(), beat(1.0), now=10.0)
    node = hear_central(node, granted(9.0, 3), now=11.0)
    assert not node.is_leading
    assert node.known == 3


def test_same_grant_a_second_time_after_a_higher_epoch_is_ignored() -> None:
    node = hear_central(standby(), granted(6.0, 3), now=7.0)
    node = hear(node, beat(8.0, known=4, held=4), now=8.0)
    node = hear_central(node, granted(6.0, 3), now=30.0)
    assert (node.is_leading, node.held, node.known) == (False, 3, 4)


@pytest.mark.parametrize("way", ["peer", "central"])
def test_node_stops_when_it_hears_of_a_higher_epoch(way: str) -> None:
    node = hear_central(leader(), granted(1.0, 2), now=1.0)
    if way == "peer":
        node = hear(node, answer_of_standby(1.0, 1.0), now=1.1)
        assert grounds(node, 1.2) is Grounds.LEASE
        node = hear(node, replace(answer_of_standby(1.0, 1.0), known=3), now=1.2)
    else:
        node = hear_central(node, refused(3), now=1.2)
    assert grounds(node, 1.2) is None
    assert (node.held, node.known) == (2, 3)


def test_pair_without_central_leader_continues_alone() -> None:
    node = without_central(leader(), until=100.0)
    assert grounds(node, 1_000.0) is Grounds.ALONE


@pytest.mark.parametrize(("policy", "expected"), [("availability", True), ("consistency", False)])
def test_pair_without_central_standby_takes_the_next_epoch_by_its_policy(policy: str, expected: bool) -> None:
    node = without_central(standby(policy=TakeoverPolicy(policy)), until=100.0)
    assert not should_take(node, 109.9)
    assert should_take(node, 110.0) is expected
    assert should_take(node, 10_000.0) is expected


def test_taken_epoch_is_the_next_of_the_nodes_parity_and_allows_execution() -> None:
    node = take(replace(standby(), known=6), now=50.0)
    assert (node.held, node.known) == (7, 7)
    assert grounds(node, 1_000.0) is Grounds.ALONE


def test_node_that_loses_both_within_one_lease_executes_nothing_for_ten_minutes() -> None:
    node = hear_central(leader(), granted(100.0, 2), now=100.0)
    node = hear(node, answer_of_standby(0.0, echo=104.0, age_s=2.0), now=104.0)
    assert grounds(node, 110.0) is None
    assert grounds(node, 104.0 + CUT_OFF_S - 0.1) is None
    assert grounds(node, 104.0 + CUT_OFF_S) is Grounds.ALONE


def test_under_consistency_a_node_that_lost_both_waits_for_a_person() -> None:
    node = hear_central(leader(policy=TakeoverPolicy.CONSISTENCY), granted(100.0, 2), now=100.0)
    assert grounds(node, 1e6) is None
    assert grounds(take(node, 1e6), 1e6) is Grounds.ALONE


def test_standby_that_loses_both_within_one_lease_takes_over_after_ten_minutes() -> None:
    node = hear(standby(), beat(1.0, echo=99.0, age_s=3.0), now=100.0)
    assert not should_take(node, 100.0 + CUT_OFF_S - 0.1)
    assert should_take(node, 100.0 + CUT_OFF_S)


def test_late_heartbeat_does_not_prove_that_the_pair_was_without_central() -> None:
    node = hear_central(standby(), refused(2), now=100.0)
    node = hear(node, beat(1.0, echo=99.0, age_s=0.0), now=112.0)
    assert not should_take(node, 130.0)


def test_central_ends_leading_alone() -> None:
    node = take(standby(), now=50.0)
    node = hear_central(node, granted(60.0, 3), now=60.0)
    assert grounds(node, 60.0) is Grounds.LEASE
    assert grounds(node, 70.0) is None


def test_leader_that_steps_down_does_not_execute_and_the_invited_node_asks_at_once() -> None:
    node = step_down(hear_central(leader(), granted(1.0, 2), now=1.0), now=1.0)
    assert grounds(node, 1.1) is None
    other = hear(standby(), beat(1.0), now=1.0)
    assert not is_silent(other, 1.1)
    assert is_silent(invite(other, 2), 1.1)


def test_former_leader_gives_the_other_node_time_to_lead() -> None:
    node = step_down(hear_central(leader(), granted(1.0, 2), now=1.0), now=50.0)
    assert not is_silent(node, 54.0)
    assert not should_take(node, 54.0)
    assert is_silent(node, 55.0)
