"""Merging two branches of one call."""

from itertools import product

import pytest

from fieldpost.core.pair.merge import Branch, merge
from fieldpost.core.pair.numbering import first_number
from fieldpost.core.sites.message import CallStatus

pytestmark = [pytest.mark.req("DEC-41")]

ORDER = [CallStatus.RETRYING, CallStatus.PARKED, CallStatus.DISCARDED, CallStatus.DELIVERED]
EARLIER, LATER = first_number(2) + 8, first_number(3)


@pytest.mark.parametrize(("ours", "theirs"), [pair for pair in product(ORDER, ORDER) if pair[0] is not pair[1]])
@pytest.mark.parametrize("is_ours_later", [True, False])
def test_branch_that_got_further_wins_regardless_of_versions(
    ours: CallStatus, theirs: CallStatus, is_ours_later: bool
) -> None:
    versions = (LATER, EARLIER) if is_ours_later else (EARLIER, LATER)
    found = merge(Branch(ours, versions[0]), Branch(theirs, versions[1]))
    assert found.takes_theirs is (ORDER.index(theirs) > ORDER.index(ours))
    assert found.is_branched
    assert not found.is_duplicate


def test_call_delivered_on_both_sides_is_a_duplicate() -> None:
    found = merge(Branch(CallStatus.DELIVERED, EARLIER), Branch(CallStatus.DELIVERED, LATER))
    assert found.is_duplicate


def test_later_state_of_the_same_node_is_not_a_branch() -> None:
    found = merge(Branch(CallStatus.PARKED, LATER), Branch(CallStatus.RETRYING, LATER + 1))
    assert (found.takes_theirs, found.is_branched) == (True, False)


def test_same_state_twice_changes_nothing() -> None:
    found = merge(Branch(CallStatus.DELIVERED, LATER), Branch(CallStatus.DELIVERED, LATER))
    assert (found.takes_theirs, found.is_duplicate) == (False, False)


def test_unknown_call_is_taken() -> None:
    assert merge(None, Branch(CallStatus.PENDING, 1)).takes_theirs
