"""pytest hooks for `needs` marks and the list of left-out tests; `conftest` imports them."""

import pytest

from support.need import left_out, need, summary


def pytest_configure() -> None:
    left_out()  # refuses unknown names before the first test


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        need(*mark.args)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.getreports("skipped")]
    if skipped:
        terminalreporter.section("left out")
        for line in summary(skipped):
            terminalreporter.line(line)
