"""`fieldpost demo --check`: unattended, on both stores, with a clear answer."""

import os
import secrets
import subprocess
from pathlib import Path

import pytest

from fieldpost.clock import SystemClock
from support.running_demo import COMMAND, processes_of
from support.site_folders import closed_port

LIMIT_S = 45


@pytest.fixture
def mark() -> str:
    return secrets.token_hex(8)


def run_check(tmp_path: Path, mark: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "--check", *arguments],
        cwd=tmp_path,
        env=os.environ | {"DEMO_MARK": mark, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
    )


def test_the_check_passes_on_sqlite_within_its_time_and_leaves_nothing(tmp_path: Path, mark: str) -> None:
    clock = SystemClock()
    began = clock.monotonic()
    result = run_check(tmp_path, mark)
    assert result.returncode == 0, result.stdout + result.stderr
    assert clock.monotonic() - began < LIMIT_S
    assert result.stdout.count("\n  ok ") == 3
    assert list(tmp_path.iterdir()) == []
    assert processes_of(mark) == []


def test_the_check_passes_on_postgresql(tmp_path: Path, mark: str, empty_pg_url: str) -> None:
    result = run_check(tmp_path, mark, "--store", empty_pg_url)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "central on PostgreSQL" in result.stdout
    assert processes_of(mark) == []


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Folder and store of a check that has passed."""
    path = tmp_path_factory.mktemp("checked")
    folder, store = str(path / "folder"), f"sqlite:///{path / 'store.db'}"
    result = run_check(path, "", "--folder", folder, "--store", store)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder, store


def test_the_check_passes_on_data_of_an_earlier_one(tmp_path: Path, mark: str, checked: tuple[str, str]) -> None:
    folder, store = checked
    result = run_check(tmp_path, mark, "--folder", folder, "--store", store)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Going on with" in result.stdout


def test_a_store_of_another_folder_fails_the_check_with_the_reason(
    tmp_path: Path, mark: str, checked: tuple[str, str]
) -> None:
    result = run_check(tmp_path, mark, "--store", checked[1])
    assert result.returncode == 1
    assert "the store has accounts already" in result.stdout
    assert processes_of(mark) == []


def test_a_store_that_cannot_be_reached_fails_the_check_with_the_reason(tmp_path: Path, mark: str) -> None:
    result = run_check(tmp_path, mark, "--store", f"postgresql://nobody@127.0.0.1:{closed_port()}/none")
    assert result.returncode == 1
    assert "central cannot run: the central store cannot be reached" in result.stdout
    assert processes_of(mark) == []
