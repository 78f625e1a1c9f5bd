"""The demo's processes as the demo sees them: started in sessions of their own, so that Ctrl-C reaches only the demo,
which then stops them in order; begun again when they die unasked, with the end of their log shown.
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
    """The demo cannot go on; the text says why."""


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
        `lock_handle` is kept open by the process, so that the demo's lock lasts as long as the last of them. `on_death`
        is told of a death before the process is begun again; without it a death ends the demo.
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
        """Keep it running until `stop`. Raises DemoFailed when it cannot run, or dies again and again."""
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
            self._mourn(code)
            await self._clock.sleep(RESTART_S)

    async def stop(self, grace_s: float) -> None:
        """Ask it to end, and make it end when it has not within the grace time."""
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
        """End it at once, and whatever it has started."""
        self._stopping.set()
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def log_tail(self) -> str:
        """The last lines of its log."""
        with suppress(OSError), self.log_file.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
            return "\n".join(lines[-TAIL_LINES:])
        return ""

    async def _start(self) -> asyncio.subprocess.Process:
        kind = type(self.part).__struct_config__.tag
        with self.log_file.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                # -P: a folder named fieldpost where the demo was started must not be taken for the package. The two
                # words behind are for people who look at a list of processes.
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
        # Left open: the end of it tells the process that the demo is gone.
        process.stdin.write(msgspec.json.encode(self.part) + b"\n")
        return process

    async def _listen(self, process: asyncio.subprocess.Process) -> str | None:
        """Pass its reports on until it ends; why it gave up, if it said so."""
        assert process.stdout is not None
        async for line in process.stdout:
            report = msgspec.json.decode(line, type=Report)
            if isinstance(report, Failed):
                return report.text
            self._on_report(report)
        return None

    def _mourn(self, code: int) -> None:
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        tail = self.log_tail()
        story = f"{self.name} {how}." + (f" The end of {self.log_file}:\n{tail}" if tail and code >= 0 else "")
        if self._on_death is None:
            raise DemoFailed(story)
        now = self._clock.monotonic()
        self._deaths.append(now)
        if len(self._deaths) == DEATHS_MAX and now - self._deaths[0] < DEATHS_WITHIN_S:
            raise DemoFailed(f"{story}\nThat was the {DEATHS_MAX}rd time within {DEATHS_WITHIN_S:.0f} s.")
        self._on_death(story)


async def stop_together(children: Iterable[Child], grace_s: float) -> None:
    await asyncio.gather(*(child.stop(grace_s) for child in children))
