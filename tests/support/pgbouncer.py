"""A real PgBouncer in front of a PostgreSQL server: another server connection for each transaction.

tools/pgbouncer installs it where it can. It refuses to run as root, so there it runs as nobody.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support.need import cannot_have, need
from support.ports import free_port
from support.postgres import NOBODY

START_DEADLINE_S = 20.0
_CONFIG = """
[databases]
* = {server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 200
default_pool_size = 5
server_idle_timeout = 1
"""


@contextmanager
def transaction_pooler(server_url: str) -> Iterator[str]:
    """The URL of a pooler for the databases of this server, without the name of a database."""
    need("pgbouncer")
    parts = urlsplit(server_url)
    host = parts.hostname or parse_qs(parts.query)["host"][0]
    server = f"host={host} user={parts.username or 'postgres'}"
    server += f" port={parts.port}" if parts.port else ""
    server += f" password={parts.password}" if parts.password else ""
    port, folder = free_port(), Path(tempfile.mkdtemp(prefix="fieldpost-pgbouncer-"))
    folder.chmod(0o755)
    (folder / "pgbouncer.ini").write_text(_CONFIG.format(server=server, port=port))
    user: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    program = str(shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin"))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, str(folder / "pgbouncer.ini")], stdin=subprocess.DEVNULL, stdout=log, stderr=log, **user
        )
    try:
        _wait_until_open(port, process, folder / "log")
        yield f"postgresql://postgres@127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_until_open(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                cannot_have("pgbouncer", f"it did not start: {log.read_text(errors='replace')[-800:]}")
        time.sleep(0.02)
