"""A start in a folder of another user, or on an address that cannot be used, names the cause and creates nothing."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.commands import fieldpost_here

NOBODY = 65534
AS_NOBODY = """
import encodings.ascii, encodings.idna, os, sys
import fieldpost.cli.commands, fieldpost.cli.local.central, fieldpost.cli.local.demo, fieldpost.demo.demo
import fieldpost.run.central, uvloop
from fieldpost.cli.main import main
# Once the library is loaded: that user may not be allowed to read it.
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
main()
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user can enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def run_as_nobody(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", AS_NOBODY, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    ("command", "foreign"),
    [
        ("central", "folder"),
        ("central", "file"),
        ("central", "closed folder"),
        ("central", "parent"),
        ("migrate", "file"),
        ("demo", "file"),
        ("demo", "closed folder"),
    ],
)
def test_a_start_on_data_of_another_user_names_the_owner_and_the_remedy(
    shared: Path, command: str, foreign: str
) -> None:
    data = shared / "data"
    if foreign != "parent":
        data.mkdir()
        (data / "central.db").touch(0o644)
        (data / "central").mkdir()
        (data / "central" / "central.db").touch(0o644)
    match foreign:
        case "file":
            os.chown(data, NOBODY, NOBODY)
            os.chown(data / "central", NOBODY, NOBODY)
        case "closed folder":
            data.chmod(0o700)
    before = sorted(shared.rglob("*"))
    ran = run_as_nobody(shared, command, "--folder", "data")
    assert (ran.returncode, ran.stdout) == (8, ""), ran.stderr
    assert "belongs to root (mode 0" in ran.stderr
    assert "and this process runs as nobody" in ran.stderr
    assert ("sudo chown -R nobody data" in ran.stderr) == (foreign != "parent"), "a parent is not ours to hand over"
    assert "--folder" in ran.stderr
    assert sorted(shared.rglob("*")) == before


def test_central_that_cannot_listen_reports_the_cause_and_leaves_no_folder(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        causes = {
            ("--port", port): f"the port is in use by pid {os.getpid()} (",
            ("--port", "0", "--host", "192.0.2.1"): "this machine does not have the address",
            ("--port", "0", "--host", "no-such-host.invalid"): "the host name cannot be resolved",
        }
        for options, cause in causes.items():
            ran = fieldpost_here("central", *options, folder=tmp_path)
            assert (ran.returncode, cause in ran.stderr.decode()) == (8, True), ran.stderr
            assert list(tmp_path.iterdir()) == []


@pytest.mark.needs("root")
def test_port_below_1024_without_permission_is_reported(shared: Path) -> None:
    shared.chmod(0o777)
    ran = run_as_nobody(shared, "central", "--port", "80")
    if "CAP_NET_BIND_SERVICE" not in ran.stderr:
        limit = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text(encoding="ascii").strip()
        pytest.skip(f"here every user may listen on ports from {limit}")
    assert (ran.returncode, list(shared.iterdir())) == (8, [])
