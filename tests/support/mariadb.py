"""A real MariaDB server of our own: the system's programs, a folder of its own, a port on loopback.

tools/mariadb installs the programs where it can.
"""

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from support.need import cannot_have, need
from support.ports import free_port
from support.postgres import MEMORY, _has_room

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"
START_DEADLINE_S = 60.0


class MariadbServer:
    """A server with no databases. As a context manager it stops at the end and leaves nothing behind.

    ``durable=True`` flushes at every commit and keeps the data on the disk.
    """

    def __init__(self, *, durable: bool = False) -> None:
        need("mariadb")
        self.durable = durable
        place = MEMORY if not durable and _has_room(MEMORY) else None
        self.folder = Path(tempfile.mkdtemp(prefix="fieldpost-mariadb-", dir=place))
        self.data = self.folder / "data"
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._count = itertools.count(1)

    def __enter__(self) -> Self:
        try:
            self._initialize()
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
        """Start the server on its data and wait until it takes connections."""
        quick = () if self.durable else ("--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync")
        command = [
            *(str(shutil.which("mariadbd", path=PATH)), "--no-defaults", *self._user, f"--datadir={self.data}"),
            *(f"--port={self.port}", "--bind-address=127.0.0.1", f"--socket={self.folder}/socket"),
            *(f"--pid-file={self.folder}/pid", "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=32M"),
            *("--skip-log-bin", "--performance-schema=off", "--max-connections=200", *quick),
        ]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True
            )
        from pymysql.err import OperationalError

        deadline = time.monotonic() + START_DEADLINE_S
        while True:
            try:
                self.connect().close()
                return
            except OperationalError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    cannot_have("mariadb", f"the server did not start: {self._log.read_text(errors='replace')[-800:]}")
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop it: SIGTERM shuts down in order, SIGKILL crashes it."""
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
        self.stop(signal.SIGTERM if self.durable else signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self, **options: Any) -> Any:
        return connect(f"mariadb://root@127.0.0.1:{self.port}", **options)

    @contextmanager
    def fresh(self) -> Iterator[str]:
        """The URL of a new database, dropped at the end."""
        name = f"fieldpost_{next(self._count)}"
        self._execute(f"create database {name}")
        try:
            yield f"mariadb://root@127.0.0.1:{self.port}/{name}"
        finally:
            self._execute(f"drop database {name}")

    def _execute(self, statement: str) -> None:
        with self.connect(autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(statement)

    def _initialize(self) -> None:
        command = [
            *("mariadb-install-db", "--no-defaults", *self._user, f"--datadir={self.data}"),
            *("--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"),
        ]
        with self._log.open("ab") as log:
            if subprocess.run(command, stdout=log, stderr=log, check=False, cwd=self.folder).returncode:
                cannot_have("mariadb", f"{command[0]} failed: {self._log.read_text(errors='replace')[-800:]}")

    @property
    def _user(self) -> tuple[str, ...]:
        return ("--user=root",) if os.geteuid() == 0 else ()

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"


def connect(url: str, **options: Any) -> Any:
    """A connection by PyMySQL to the database of this URL."""
    import pymysql

    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname, port=parts.port or 3306, user=parts.username, database=parts.path[1:] or None, **options
    )
