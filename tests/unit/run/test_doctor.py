"""The doctor's own checks: clock and disk, and the verdict of all together."""

from datetime import timedelta
from pathlib import Path

import pytest

from fieldpost.core.checks import Check, Diagnosis, Verdict
from fieldpost.run.doctor import clock_check, disk_check


@pytest.mark.parametrize(
    ("ahead_s", "verdict", "says"),
    [
        (0.2, Verdict.OK, "0.2 s ahead of"),
        (-5, Verdict.OK, "5.0 s behind"),
        (5.1, Verdict.WARNING, "5.1 s ahead of"),
        (-3600, Verdict.WARNING, "3600.0 s behind"),
    ],
)
def test_a_clock_that_differs_from_the_databases_is_told(ahead_s: float, verdict: Verdict, says: str) -> None:
    check = clock_check(timedelta(seconds=ahead_s))
    assert check.verdict is verdict
    assert says in check.detail


def test_the_disk_is_looked_at_where_the_folder_will_be(tmp_path: Path) -> None:
    check = disk_check(tmp_path / "not" / "there" / "yet")
    assert check.verdict is Verdict.OK
    assert str(tmp_path) in check.detail


@pytest.mark.parametrize(
    ("verdicts", "worst"),
    [
        ([Verdict.OK, Verdict.OK], Verdict.OK),
        ([Verdict.OK, Verdict.WARNING], Verdict.WARNING),
        ([Verdict.FAILING, Verdict.WARNING, Verdict.OK], Verdict.FAILING),
    ],
)
def test_the_verdict_is_the_worst_of_all(verdicts: list[Verdict], worst: Verdict) -> None:
    assert Diagnosis(tuple(Check("x", verdict, "") for verdict in verdicts)).verdict is worst
