"""Parts of `make chaos`: each test that fits is in exactly one of at most ten minutes; a commit always has the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.chaos_parts import PART_S, choose, parts_of, seconds_of

NAMES = [f"tests/chaos/test_killed_journeys.py::test_fifty_kills_of_agent_or_central[{n}]" for n in range(5)]
LONG = "tests/chaos/test_killed_journeys.py::test_two_hundred_kills_of_the_agent_lose_nothing_and_double_nothing"
OTHERS = [f"tests/chaos/test_new.py::test_number_{n}" for n in range(12)]


def test_parts_hold_every_test_once_and_none_takes_longer_than_ten_minutes() -> None:
    parts = parts_of([*NAMES, LONG, *OTHERS])
    assert sorted(one for part in parts for one in part) == sorted([*NAMES, *OTHERS])
    assert all(sum(map(seconds_of, part)) <= PART_S for part in parts)
    assert len(parts) == 5


def test_a_commit_selects_a_part_and_its_number_repeats_it() -> None:
    every = [*NAMES, *OTHERS]
    by_commit = choose("commit:1a2b3c4d", every)
    assert by_commit == choose("commit:1a2b3c4d", every) == choose(str(by_commit.number), every)
    assert {choose(f"commit:{n:08x}", every).number for n in range(5)} == {1, 2, 3, 4, 5}
    for wrong in ("0", "6", "x", "commit:", ""):
        with pytest.raises(ValueError, match="PART must be a number from 1 to 5"):
            choose(wrong, every)


def test_the_real_tests_are_cut_into_parts(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "tests/chaos"],
        cwd=project,
        env=os.environ | {"CHAOS_PART": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "chaos: part 2 of" in done.stdout
    chosen = [line for line in done.stdout.splitlines() if line.startswith("tests/chaos/")]
    assert chosen
    assert sum(map(seconds_of, chosen)) <= PART_S
