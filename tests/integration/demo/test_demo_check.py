"""`fieldpost demo --check`: unattended, on both stores, with a clear answer."""

import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldpost.clock import SystemClock
from fieldpost.site.pair.pair_files import PairFiles
from support.databases import PostgresDatabases
from support.ports import closed_port
from support.running_demo import COMMAND, processes_of

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
    assert result.stdout.count("\n  ok ") == 5
    assert list(tmp_path.iterdir()) == []
    assert processes_of(mark) == []


@pytest.fixture(scope="module")
def on_postgresql(
    tmp_path_factory: pytest.TempPathFactory, pg_databases: PostgresDatabases
) -> Iterator[tuple[subprocess.CompletedProcess[str], str, str]]:
    """A check on PostgreSQL, in this folder and on this store, which others may use again."""
    path = tmp_path_factory.mktemp("checked")
    with pg_databases.fresh(is_empty=True) as store:
        arguments = ("--folder", str(path / "folder"), "--store", store, "--pair")
        yield run_check(path, "", *arguments), str(path / "folder"), store


def test_the_check_passes_on_postgresql_and_again_on_the_data_of_an_earlier_one(
    tmp_path: Path, mark: str, on_postgresql: tuple[subprocess.CompletedProcess[str], str, str]
) -> None:
    first, folder, store = on_postgresql
    assert PairFiles(Path(folder) / "harbour-second").is_paired
    assert first.returncode == 0, first.stdout + first.stderr
    assert "central on PostgreSQL" in first.stdout
    again = run_check(tmp_path, mark, "--folder", folder, "--store", store)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "Continuing with" in again.stdout
    assert processes_of(mark) == []


def test_a_store_of_another_folder_fails_the_check_with_the_reason(
    tmp_path: Path, mark: str, on_postgresql: tuple[subprocess.CompletedProcess[str], str, str]
) -> None:
    result = run_check(tmp_path, mark, "--store", on_postgresql[2])
    assert result.returncode == 1
    assert "the store already has accounts" in result.stdout
    assert processes_of(mark) == []


def test_unreachable_store_fails_the_check_with_the_reason(tmp_path: Path, mark: str) -> None:
    result = run_check(tmp_path, mark, "--store", f"postgresql://nobody@127.0.0.1:{closed_port()}/none")
    assert result.returncode == 1
    assert "central cannot run: cannot reach the central store" in result.stdout
    assert processes_of(mark) == []
