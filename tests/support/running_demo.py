"""A real `fieldpost demo` under test: its output line by line, its inbox, and whatever processes it leaves behind."""

import json
import os
import queue
import re
import secrets
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from support.need import cannot_have

DEADLINE_S = 60.0
COMMAND = [sys.executable, "-c", "from fieldpost.cli.main import main; main()", "demo"]
ANY_PORTS = ["--port", "0", "--inbox-port", "0", "--smtp-port", "0"]


class RunningDemo:
    """Started in a session of its own, as a terminal would; killed at the end if it still runs."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.mark = secrets.token_hex(8)
        self.lines: list[str] = []
        self._is_read = True
        self._queue: queue.Queue[str | None] = queue.Queue()
        self.process = subprocess.Popen(
            [*COMMAND, "--folder", str(folder), *(arguments or ANY_PORTS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=os.environ | {"DEMO_MARK": self.mark},
        )
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> "RunningDemo":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def until(self, pattern: str) -> re.Match[str]:
        """The first line from here on that matches."""
        while True:
            line = self._queue.get(timeout=DEADLINE_S)
            assert line is not None, f"ended without {pattern!r}:\n" + "".join(self.lines)
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send the signal to the demo alone and wait for its end; the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def stop_reading(self) -> None:
        """Close our end of its output, as `| head` does."""
        self._is_read = False

    def wait(self) -> int:
        code = self.process.wait(DEADLINE_S)
        while (line := self._queue.get(timeout=DEADLINE_S)) is not None:
            self.lines.append(line)
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            while self._is_read and (line := output.readline()):
                self._queue.put(line)
        self._queue.put(None)


def processes_of(mark: str) -> list[str]:
    """The command lines of the processes that have this mark in their environment."""
    found = []
    if not Path("/proc/self/environ").exists():
        cannot_have("linux", "no /proc")
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"DEMO_MARK={mark}".encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def mail_ids(inbox_url: str) -> set[str]:
    """The ids of the notifications whose mails are in the inbox."""
    with urllib.request.urlopen(f"{inbox_url}/mails.json", timeout=DEADLINE_S) as answer:
        mails: list[dict[str, Any]] = json.load(answer)["mails"]
    return {mail["x_fieldpost_id"] for mail in mails}
