"""Numbers of changes, versions and epochs of a pair."""

import pytest

from fieldpost.core.pair.numbering import EPOCH_MAX, EPOCH_STEP, epoch_of, first_number, next_epoch, next_version
from fieldpost.link.messages import SEQ_MAX

pytestmark = [pytest.mark.req("DEC-41")]


@pytest.mark.parametrize(("node", "known", "expected"), [(0, 0, 2), (0, 1, 2), (1, 1, 3), (1, 2, 3), (0, 5, 6)])
def test_next_epoch_is_higher_and_has_the_parity_of_the_node(node: int, known: int, expected: int) -> None:
    assert next_epoch(node, known) == expected


def test_numbers_of_every_epoch_fit_the_link() -> None:
    assert first_number(EPOCH_MAX) + EPOCH_STEP <= SEQ_MAX
    with pytest.raises(OverflowError, match="all 2097152 epochs"):
        next_epoch(1, EPOCH_MAX)


def test_number_names_its_epoch() -> None:
    assert epoch_of(first_number(7) + 12) == 7


def test_version_under_a_later_epoch_is_higher_than_all_of_the_former_one() -> None:
    assert next_version(first_number(2) + 900, first_number(3) + 1) == first_number(3)
    assert next_version(first_number(3), first_number(3) + 2) == first_number(3) + 1


def test_version_without_a_pair_counts_by_one() -> None:
    assert next_version(4, 1_000) == 5
