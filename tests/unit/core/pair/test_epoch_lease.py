"""Central's lease on the leadership of a pair."""

from datetime import timedelta

import pytest

from fieldpost.core.pair.epoch_lease import EpochLease, force, give_back, grant, renew
from support.sample import NOW

pytestmark = [pytest.mark.req("DEC-39")]

LATER = NOW + timedelta(seconds=10)
HELD = EpochLease(epoch=4, node=0, until=LATER)


def test_first_grant_is_the_next_epoch_of_the_nodes_parity() -> None:
    assert grant(None, 0, known=1, now=NOW) == EpochLease(epoch=2, node=0, until=LATER)


def test_valid_lease_is_not_granted_to_the_other_node() -> None:
    assert grant(HELD, 1, known=4, now=LATER - timedelta(microseconds=1)) is None


@pytest.mark.parametrize(("node", "known", "expected"), [(1, 4, 5), (0, 4, 6), (1, 8, 9), (1, 0, 5)])
def test_expired_lease_is_granted_above_all_known_epochs(node: int, known: int, expected: int) -> None:
    found = grant(HELD, node, known, LATER)
    assert found is not None
    assert (found.epoch, found.node) == (expected, node)


def test_released_lease_is_granted_at_once() -> None:
    found = grant(give_back(HELD, 0, 4), 1, known=4, now=NOW)
    assert found is not None
    assert found.epoch == 5


def test_holder_whose_answer_was_lost_gets_the_same_epoch_again() -> None:
    assert grant(HELD, 0, known=3, now=NOW) == HELD
    assert grant(HELD, 0, known=4, now=NOW) is None


def test_renewal_extends_only_the_highest_epoch() -> None:
    found = renew(HELD, 0, 4, LATER)
    assert found is not None
    assert found.until == LATER + timedelta(seconds=10)
    assert renew(HELD, 0, 2, NOW) is None


def test_late_renewal_does_not_revive_a_released_lease() -> None:
    assert renew(give_back(HELD, 0, 4), 0, 4, NOW) is None


def test_epoch_taken_without_central_is_adopted_and_marked() -> None:
    found = renew(HELD, 1, 5, LATER)
    assert found == EpochLease(epoch=5, node=1, until=LATER + timedelta(seconds=10), is_taken=True)


def test_epoch_taken_without_central_waits_for_the_end_of_the_other_nodes_lease() -> None:
    assert renew(HELD, 1, 5, LATER - timedelta(microseconds=1)) is None
    assert renew(HELD, 0, 6, NOW) is not None


def test_epoch_of_the_other_parity_is_refused() -> None:
    assert renew(HELD, 1, 6, NOW) is None


def test_only_the_holder_can_release_a_lease() -> None:
    assert give_back(HELD, 1, 4) is None
    assert give_back(HELD, 0, 2) is None


def test_forced_epoch_begins_while_the_lease_of_the_other_node_is_valid() -> None:
    held = EpochLease(epoch=2, node=0, until=LATER)
    forced = EpochLease(epoch=3, node=1, until=LATER, is_taken=True)
    assert force(held, 1, 3, NOW) == forced
    assert force(None, 1, 3, NOW) == forced
    assert force(forced, 1, 3, NOW) == forced, "reported again"
    assert force(held, 1, 4, NOW) is None, "not an epoch of this node"
    assert force(EpochLease(epoch=4, node=0, until=None), 1, 3, NOW) is None, "an old one"
    assert renew(forced, 0, 2, NOW) is None, "the former leader stops"
