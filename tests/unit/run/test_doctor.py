"""The doctor's own checks: clock and disk, and the verdict of all together."""

from datetime import timedelta
from pathlib import Path

import pytest

from fieldpost.core.checks import Check, CheckVerdict, Diagnosis
from fieldpost.run.doctor import clock_check, disk_check


@pytest.mark.parametrize(
    ("ahead_s", "verdict", "says"),
    [
        (0.2, CheckVerdict.OK, "0.2 s ahead of"),
        (-5, CheckVerdict.OK, "5.0 s behind"),
        (5.1, CheckVerdict.WARNING, "5.1 s ahead of"),
        (-3600, CheckVerdict.WARNING, "3600.0 s behind"),
    ],
)
def test_clock_that_differs_from_the_databases_is_reported(ahead_s: float, verdict: CheckVerdict, says: str) -> None:
    check = clock_check(timedelta(seconds=ahead_s))
    assert check.verdict is verdict
    assert says in check.detail


def test_disk_is_checked_at_the_nearest_existing_folder(tmp_path: Path) -> None:
    check = disk_check(tmp_path / "not" / "there" / "yet")
    assert check.verdict is CheckVerdict.OK
    assert str(tmp_path) in check.detail


@pytest.mark.parametrize(
    ("verdicts", "worst"),
    [
        ([CheckVerdict.OK, CheckVerdict.OK], CheckVerdict.OK),
        ([CheckVerdict.OK, CheckVerdict.WARNING], CheckVerdict.WARNING),
        ([CheckVerdict.FAILING, CheckVerdict.WARNING, CheckVerdict.OK], CheckVerdict.FAILING),
    ],
)
def test_overall_verdict_is_the_worst_one(verdicts: list[CheckVerdict], worst: CheckVerdict) -> None:
    assert Diagnosis(tuple(Check("x", verdict, "") for verdict in verdicts)).verdict is worst
