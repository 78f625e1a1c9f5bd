"""Fixtures of the fault tests (support/fault_fixtures.py), and the choice of a part (support/chaos_parts.py)."""

import os
import time

import pytest

from support.chaos_parts import PART_S, choose, seconds_of
from support.fault_fixtures import clock, cluster, durable_cluster, mail

__all__ = ["clock", "cluster", "durable_cluster", "mail"]
_BEGAN = time.monotonic()
_LONGER: list[str] = []
TOLERANCE = 1.5


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = os.environ.get("CHAOS_PART", "")
    if not wanted:
        return
    try:
        part = choose(wanted, [item.nodeid for item in items])
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in part.node_ids])
    items[:] = [item for item in items if item.nodeid in part.node_ids]
    print(f"chaos: part {part.number} of {part.count}; `make chaos PART={part.number}` repeats it")


def pytest_runtest_setup() -> None:
    if os.environ.get("CHAOS_PART") and time.monotonic() - _BEGAN > PART_S:
        pytest.skip("the ten minutes of this part are over")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.duration > TOLERANCE * seconds_of(report.nodeid):
        _LONGER.append(f"{report.nodeid} took {report.duration:.0f} s, not {seconds_of(report.nodeid)}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in _LONGER:
        terminalreporter.line(f"chaos: correct tests/support/chaos_parts.py: {line}")
