"""Other users of the same machine: they can neither lock out scripts and agents nor open new folders."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.sample import NOW
from tests.support.site_folders import make_site

from fieldpost import Site
from fieldpost.central.store.engine.lock import StoreLock
from fieldpost.core.checks import CheckVerdict
from fieldpost.file_lock import FileLock
from fieldpost.front.options import FrontOptions
from fieldpost.run.doctor import examine as examine_central
from fieldpost.run.settings import CentralOptions, CentralSettings
from fieldpost.site.buffer.agent_lock import AgentLock
from fieldpost.site.repair.doctor import examine

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="modes and locks differ elsewhere"),
    pytest.mark.threat(30),
]
NOBODY = 65534
LOCKING = """
import fcntl, os, sys
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
kept = []
for name in sys.argv[1:]:
    try:
        kept.append(os.open(name, os.O_RDONLY))
        fcntl.flock(kept[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        print(os.path.basename(name), error.strerror)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that other users can enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def locked_by_another_user(*paths: Path) -> tuple[subprocess.Popen[str], list[str]]:
    """A process of another user (if the tests run as root) that keeps all locks it can get; the refusals it saw."""
    process = subprocess.Popen(
        [sys.executable, "-c", LOCKING, *map(str, paths)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    refusals = []
    while (line := process.stdout.readline().strip()) != "locked":
        assert line, "the process has ended"
        refusals.append(line)
    return process, refusals


def test_locked_folder_blocks_neither_script_nor_agent(open_path: Path) -> None:
    folder = open_path / "site"
    make_site(folder).close()
    folder.chmod(0o755)
    other, refusals = locked_by_another_user(folder)
    try:
        assert refusals == []
        with Site.open(folder) as site:
            site.notify.to("operators").send("Pump 4 stopped", "No flow.")
        with AgentLock(folder):
            pass
    finally:
        other.communicate("")


@pytest.mark.needs("root")
def test_another_user_cannot_take_a_lock_of_a_site_or_of_central(open_path: Path) -> None:
    folder = open_path / "site"
    make_site(folder).close()
    folder.chmod(0o755)
    store = f"sqlite:///{open_path / 'central.db'}"
    with AgentLock(folder), StoreLock(store):
        pass
    locks = [folder / "buffer.lock", folder / "agent.lock", open_path / "central.db.lock"]
    other, refusals = locked_by_another_user(*locks)
    try:
        assert refusals == [f"{lock.name} Permission denied" for lock in locks]
        with Site.open(folder) as site, AgentLock(folder), StoreLock(store):
            site.notify.to("operators").send("Pump 4 stopped", "No flow.")
    finally:
        other.communicate("")


def test_a_lock_file_that_others_can_open_is_closed_to_them_when_it_is_next_used(tmp_path: Path) -> None:
    path = tmp_path / "agent.lock"
    path.touch()
    path.chmod(0o644)
    lock = FileLock(path)
    assert lock.acquire()
    lock.release()
    assert mode_of(path) == 0o600


def test_the_lock_file_of_a_buffer_has_its_mode_and_group(open_path: Path) -> None:
    folder = open_path / "site"
    make_site(folder).close()
    assert mode_of(folder / "buffer.lock") == 0o600
    (folder / "buffer.db").chmod(0o660)
    if os.geteuid() == 0:
        os.chown(folder / "buffer.db", NOBODY, 54_321)
    for mode, lock_mode in ((0o660, 0o660), (0o640, 0o600), (0o666, 0o660), (0o600, 0o600)):
        (folder / "buffer.db").chmod(mode)
        with Site.open(folder) as site:
            site.notify.to("operators").send("Pump 4 stopped", "No flow.")
        buffer, lock = (folder / "buffer.db").stat(), (folder / "buffer.lock").stat()
        assert stat.S_IMODE(lock.st_mode) == lock_mode
        assert (lock.st_uid, lock.st_gid) == (buffer.st_uid, buffer.st_gid)


def test_new_folder_is_private_and_an_existing_one_keeps_its_mode_with_a_warning(open_path: Path) -> None:
    new, existing = open_path / "new", open_path / "existing"
    existing.mkdir(mode=0o755)
    for folder in (new, existing):
        make_site(folder).close()
    assert (mode_of(new), mode_of(existing)) == (0o700, 0o755)

    def warnings(folder: Path) -> list[str]:
        checks = examine(folder, NOW).diagnosis.checks
        return [check.detail for check in checks if check.name == "access" and check.verdict is CheckVerdict.WARNING]

    assert warnings(new) == []
    [warning] = warnings(existing)
    assert warning == f"every user of this machine can open {existing} (mode 0755): chmod o= {existing}"


async def test_the_doctor_of_central_warns_of_a_folder_that_every_user_can_open(open_path: Path) -> None:
    folder = open_path / "central"
    with StoreLock(f"sqlite:///{folder / 'central.db'}"):
        pass
    assert mode_of(folder) == 0o700

    async def warnings() -> list[str]:
        found = await examine_central(CentralSettings(central=CentralOptions(folder=str(folder))))
        return [check.detail for check in found.checks if check.name == "access"]

    assert await warnings() == []
    folder.chmod(0o750)
    assert await warnings() == []
    folder.chmod(0o701)
    assert await warnings() == [f"every user of this machine can open {folder} (mode 0701): chmod o= {folder}"]


@pytest.mark.threat(38)
@pytest.mark.parametrize(
    ("host", "front", "is_warned"),
    [
        ("0.0.0.0", {}, True),
        ("::", {}, True),
        ("127.0.0.1", {}, False),
        ("0.0.0.0", {"trusted_proxies": "10.0.0.1"}, False),
        ("0.0.0.0", {"tls_cert": "cert.pem"}, False),
    ],
)
async def test_the_doctor_of_central_warns_of_a_network_without_tls(
    tmp_path: Path, host: str, front: dict[str, str], is_warned: bool
) -> None:
    settings = CentralSettings(central=CentralOptions(folder=str(tmp_path), host=host), front=FrontOptions(**front))
    checks = [check for check in (await examine_central(settings)).checks if check.name == "plain"]
    assert bool(checks) is is_warned
