"""Who may read a site's buffer: its owner, and whomever the administrator let in."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fieldpost import Site
from fieldpost.core.checks import CheckVerdict
from fieldpost.site.repair.doctor import examine
from fieldpost.site.repair.salvage import salvage
from support.site_folders import make_site

NOW = datetime(2026, 11, 15, tzinfo=UTC)
LOOKING = """
import asyncio, encodings.ascii, os, sys
from datetime import UTC, datetime
from pathlib import Path
from fieldpost.core.errors import Unavailable
from fieldpost.run.site import run_site
from fieldpost.site.repair.doctor import examine
if os.geteuid() == 0:
    # Once the library is loaded, which may lie where that user cannot read.
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
checks = examine(Path(sys.argv[1]), datetime(2026, 11, 15, tzinfo=UTC)).diagnosis.checks
print(*(f"{check.verdict.value} {check.detail}" for check in checks if check.name == "access"))
try:
    asyncio.run(run_site(Path(sys.argv[1])))
except Unavailable as error:
    print(error.code)
"""


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = make_site(tmp_path / "site")
    site.notify.to("operators").send("Pump 3 stopped", "No flow.")
    yield site
    site.close()


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that other users come into, as they do not into those of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.glob("buffer.db*")}


def test_new_buffer_and_its_log_and_index_are_private(site: Site, tmp_path: Path) -> None:
    assert modes(tmp_path / "site") == {"buffer.db": 0o600, "buffer.db-wal": 0o600, "buffer.db-shm": 0o600}


def test_buffer_opened_to_a_group_keeps_its_mode_through_a_salvage(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    site.close()
    (folder / "buffer.db").chmod(0o660)
    with Site.open(folder) as again:
        again.notify.to("operators").send("Pump 4 stopped", "No flow.")
        assert set(modes(folder).values()) == {0o660}
    salvage(folder / "buffer.db", NOW)
    assert modes(folder)["buffer.db"] == 0o660


@pytest.mark.needs("root")
def test_script_of_another_user_needs_a_group_to_send(open_path: Path) -> None:
    folder, group = open_path / "site", 54_321
    make_site(folder).close()
    folder.chmod(0o755)

    def send_as_another() -> str:
        # It becomes the other user once it has loaded the library, which may lie where that user cannot read.
        program = (
            "import os, sys; from fieldpost import Site;"
            f"os.setgroups([{group}]); os.setgid(65534); os.setuid(65534);"
            "Site.open(sys.argv[1]).notify.to('ops').send('s', 'b')"
        )
        return subprocess.run(
            [sys.executable, "-c", program, folder], capture_output=True, text=True, check=False
        ).stderr

    assert "buffer.db cannot be opened for writing" in send_as_another()
    os.chown(folder, -1, group)
    os.chown(folder / "buffer.db", -1, group)
    folder.chmod(0o2770)
    (folder / "buffer.db").chmod(0o660)
    assert send_as_another() == ""
    site = Site.open(folder)
    site.notify.to("operators").send("Both", "write.")
    assert send_as_another() == ""
    site.close()


def test_the_doctor_warns_of_a_buffer_that_everybody_can_read_and_not_of_a_group(site: Site, tmp_path: Path) -> None:
    def warned(mode: int) -> list[str]:
        (tmp_path / "site" / "buffer.db").chmod(mode)
        checks = examine(tmp_path / "site", NOW).diagnosis.checks
        return [check.detail for check in checks if check.name == "access" and check.verdict is CheckVerdict.WARNING]

    assert warned(0o600) == warned(0o660) == []
    assert "(mode 0644): chmod o= " in warned(0o644)[0]


@pytest.mark.skipif(os.name != "posix", reason="modes mean little elsewhere")
def test_read_only_buffer_fails_the_doctor_check_and_prevents_the_agent_from_starting(
    open_path: Path,
) -> None:
    """Else all would look well: it could be forwarded from, again and again, and never cleared."""
    folder = open_path / "site"
    make_site(folder).close()
    (folder / "buffer.db").chmod(0o400)
    if os.geteuid() == 0:
        for file in (folder, *folder.iterdir()):
            os.chown(file, 65534, 65534)
    command = [sys.executable, "-c", LOOKING, folder]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.stderr == ""
    [access, refused] = ran.stdout.splitlines()
    assert access.startswith(f"failing this user cannot write to {folder / 'buffer.db'}")
    assert refused == "buffer.denied"
