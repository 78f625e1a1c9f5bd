"""A real HTTP proxy on loopback. tools/tinyproxy installs it where it can."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.need import cannot_have, need
from support.ports import free_port
from support.postgres import NOBODY

START_DEADLINE_S = 20.0
USER = "central"
PASSWORD = "canary-of-the-proxy"
_CONFIG = """
Listen 127.0.0.1
Port {port}
Timeout 30
Allow 127.0.0.1
BasicAuth {user} {password}
LogLevel Connect
"""


@dataclass(frozen=True)
class Tinyproxy:
    """A running proxy that wants USER and PASSWORD."""

    port: int
    log_path: Path
    password_file: Path

    @property
    def options(self) -> dict[str, str]:
        """The settings of `[outbound]` for it."""
        given = {"proxy": f"http://127.0.0.1:{self.port}", "proxy_user": USER}
        return given | {"proxy_password_file": str(self.password_file)}

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")


@contextmanager
def tinyproxy() -> Iterator[Tinyproxy]:
    need("tinyproxy")
    port, folder = free_port(), Path(tempfile.mkdtemp(prefix="fieldpost-tinyproxy-"))
    folder.chmod(0o755)
    (folder / "password").write_text(PASSWORD + "\n")
    (folder / "tinyproxy.conf").write_text(_CONFIG.format(port=port, user=USER, password=PASSWORD))
    user: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(shutil.which("tinyproxy")), "-d", "-c", str(folder / "tinyproxy.conf")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            **user,
        )
    try:
        _wait_until_open(port, process, folder / "log")
        yield Tinyproxy(port, folder / "log", folder / "password")
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
                cannot_have("tinyproxy", f"it did not start: {log.read_text(errors='replace')[-800:]}")
        time.sleep(0.02)
