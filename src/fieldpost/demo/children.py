"""Child processes of the demo.

They run in their own sessions, so that Ctrl-C reaches only the demo, which stops them in order. A process that dies is
restarted, and the end of its log is printed.
"""

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from fieldpost.clock import Clock
from fieldpost.demo.protocol import DemoPart, Failed, Report

DEATHS_MAX = 3
DEATHS_WITHIN_S = 30.0
RESTART_S = 0.5
TAIL_BYTES = 64 * 1024
TAIL_LINES = 12
REPORT_BYTES_MAX = 1024 * 1024


class DemoFailed(Exception):
    """The demo cannot continue; the text is the reason."""


class Child:
    """One process, for as long as the demo runs."""

    def __init__(
        self,
        name: str,
        part: DemoPart,
        log_file: Path,
        lock_handle: int,
        clock: Clock,
        *,
        on_report: Callable[[Report], None],
        on_death: Callable[[str], None] | None,
    ) -> None:
        """
        The process inherits `lock_handle`, so that the demo's lock is held until the last process ends. `on_death` is
        called before a dead process is restarted; without it, a death ends the demo.
        """
        self.name = name
        self.part = part
        self.log_file = log_file
        self._lock_handle = lock_handle
        self._clock = clock
        self._on_report = on_report
        self._on_death = on_death
        self._process: asyncio.subprocess.Process | None = None
        self._deaths: deque[float] = deque(maxlen=DEATHS_MAX)
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Keep the process running until `stop`. Raises DemoFailed if it cannot run or dies repeatedly."""
        while not self._stopping.is_set():
            process = await self._start()
            if self._stopping.is_set():
                process.terminate()
            failure = await self._listen(process)
            code = await process.wait()
            if self._stopping.is_set():
                return
            if failure is not None:
                raise DemoFailed(f"{self.name} cannot run: {failure}")
            self._handle_death(code)
            await self._clock.sleep(RESTART_S)

    async def stop(self, grace_s: float) -> None:
        """Terminate the process, and kill it after the grace time."""
        self._stopping.set()
        process = self._process
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(grace_s):
                await process.wait()
        except TimeoutError:
            self.kill()
            await process.wait()

    def kill(self) -> None:
        """Kill the process and its children."""
        self._stopping.set()
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def log_tail(self) -> str:
        """The last lines of the log."""
        with suppress(OSError), self.log_file.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
            return "\n".join(lines[-TAIL_LINES:])
        return ""

    async def _start(self) -> asyncio.subprocess.Process:
        kind = type(self.part).__struct_config__.tag
        with os.fdopen(os.open(self.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
            process = await asyncio.create_subprocess_exec(
                # -P: a folder named fieldpost in the working directory must not shadow the package. The last two
                # arguments only label the process in a process list.
                *(sys.executable, "-P", "-m", "fieldpost.demo.child", str(kind), self.name),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                pass_fds=[self._lock_handle],
                limit=REPORT_BYTES_MAX,
            )
        self._process = process
        assert process.stdin is not None
        # Stays open: when it closes, the process knows that the demo has ended.
        process.stdin.write(msgspec.json.encode(self.part) + b"\n")
        return process

    async def _listen(self, process: asyncio.subprocess.Process) -> str | None:
        """Forward the reports until the process ends; returns the reason if it reported a failure."""
        assert process.stdout is not None
        async for line in process.stdout:
            report = msgspec.json.decode(line, type=Report)
            if isinstance(report, Failed):
                return report.text
            self._on_report(report)
        return None

    def _handle_death(self, code: int) -> None:
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        tail = self.log_tail()
        story = f"{self.name} {how}." + (f" The end of {self.log_file}:\n{tail}" if tail and code >= 0 else "")
        if self._on_death is None:
            raise DemoFailed(story)
        now = self._clock.monotonic()
        self._deaths.append(now)
        if len(self._deaths) == DEATHS_MAX and now - self._deaths[0] < DEATHS_WITHIN_S:
            raise DemoFailed(f"{story}\nIt died {DEATHS_MAX} times within {DEATHS_WITHIN_S:.0f} s.")
        self._on_death(story)


async def stop_together(children: Iterable[Child], grace_s: float) -> None:
    await asyncio.gather(*(child.stop(grace_s) for child in children))
