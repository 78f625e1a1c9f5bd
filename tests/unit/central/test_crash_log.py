"""The crash log must never keep an attempt from being made."""

import faulthandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from structlog.testing import capture_logs

from fieldpost.central.dispatch.crash_log import CrashLog

CLAIMED = cast(Any, SimpleNamespace(notification=SimpleNamespace(notification_id="n-1"), token=7))


def test_the_file_names_the_attempt_while_it_runs_and_is_gone_after_it(tmp_path: Path) -> None:
    file = tmp_path / "lone-attempt"
    was_enabled = faulthandler.is_enabled()
    with CrashLog(file).during(CLAIMED):
        assert file.read_text() == "n-1 7\n"
    assert not file.exists()
    assert faulthandler.is_enabled() == was_enabled


def test_an_attempt_runs_without_proof_if_the_file_cannot_be_written(tmp_path: Path) -> None:
    with capture_logs() as logs, CrashLog(tmp_path).during(CLAIMED):  # a folder cannot be written as a file
        ran = True
    assert ran
    assert [line["event"] for line in logs] == ["crash.not_recorded"]
