"""Things that a machine cannot offer: skipped by hand, failed with CI=true unless CI_WITHOUT names them, and listed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.disks import PowerDisk, small_disk
from support.need import NEEDS, _ptrace, cannot_have, need

SAMPLE = """
import pytest
@pytest.mark.needs("root")
def test_one():
    pass
@pytest.mark.needs("root")
def test_two():
    pass
"""


@pytest.fixture
def poor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without root and without any program."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("CI_WITHOUT", raising=False)
    _ptrace.cache_clear()
    yield
    _ptrace.cache_clear()


@pytest.mark.usefixtures("poor")
@pytest.mark.parametrize(
    "name", ["root", "mount", "ptrace", "postfix", "mariadb", "pgbouncer", "tinyproxy", "kannel", "namespaces"]
)
def test_missing_requirement_skips_by_hand_and_fails_in_ci_unless_left_out(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with pytest.raises(pytest.skip.Exception, match=f"without {name}: "):
        need(name)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=f"CI_WITHOUT={name} leaves it out"):
        need(name)
    monkeypatch.setenv("CI_WITHOUT", f"chromium, {name}")
    with pytest.raises(pytest.skip.Exception):
        need(name)


@pytest.mark.usefixtures("poor")
@pytest.mark.parametrize("name", NEEDS)
def test_requirement_found_missing_during_a_test_follows_the_same_rule(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with pytest.raises(pytest.skip.Exception, match="it failed"):
        cannot_have(name, "it failed")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="it failed"):
        cannot_have(name, "it failed")


def test_a_run_lists_what_it_left_out(project: Path, tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE)

    def run(without: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "support.need_hooks", str(tmp_path)],
            cwd=tmp_path,
            env=os.environ | {"CI": "true", "CI_WITHOUT": without, "PYTHONPATH": str(project / "tests")},
            capture_output=True,
            text=True,
            check=False,
        )

    done = run("root")
    assert (done.returncode, "2 tests: without root: CI_WITHOUT names it" in done.stdout) == (0, True), done.stdout
    done = run("rot")
    assert (done.returncode, "CI_WITHOUT names rot" in done.stderr) == (4, True), done.stderr


def test_a_small_disk_is_unmounted_even_if_a_test_left_a_file_open(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="still uses it"), small_disk(tmp_path / "disk", 1) as disk:
        left_open = (disk / "file").open("w")
    assert not (tmp_path / "disk").is_mount()
    left_open.close()


@pytest.mark.needs("mount")
def test_a_disk_restarts_after_a_power_cut_though_a_new_namespace_has_a_copy_of_its_mount(tmp_path: Path) -> None:
    with PowerDisk(tmp_path) as disk:
        (disk.path / "kept").write_text("synced")
        os.sync()
        copied = ["unshare", "-m", "--propagation", "slave", "sh", "-c", "echo; exec cat"]
        with subprocess.Popen(copied, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            other.stdout.readline()
            disk.cut()
            disk.restart()
            assert (disk.path / "kept").read_text() == "synced"
            other.kill()
