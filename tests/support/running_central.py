"""Real `fieldpost central` processes under test: started, furnished over the API, killed, paused and stopped.

Each is a child with a folder and a log of its own; several on one PostgreSQL store are nodes of one centre. A lease
lasts four seconds here, so that what takes minutes in earnest is over in seconds. It is renewed often, since
nothing is sent under one that was not for half of it, and a busy machine must not bring that about.
"""

import asyncio
import json
import os
import re
import secrets
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from support import nursery

START_S = 40.0
STOP_S = 30.0
LEASE_S = 4.0
INTERVAL_S = 1.0
QUICK = {
    "FIELDPOST_DISPATCH__LEASE_S": str(LEASE_S),
    "FIELDPOST_DISPATCH__RENEW_S": "0.5",
    "FIELDPOST_DISPATCH__INTERVAL_S": str(INTERVAL_S),
    "FIELDPOST_DISPATCH__GRACE_S": "5",
}
# Where there is prctl the node dies with the test's own process, however that ends, even while it is paused.
TETHER = "import ctypes, sys; sys.platform == 'linux' and ctypes.CDLL(None).prctl(1, 9); "
MAIN = "from fieldpost.cli.main import main; main()"


class RunningCentral:
    """One node. `first` is what its process does first, `under` a command to run it under: then it is started by the
    interpreter, else it is forked (support/nursery.py)."""

    def __init__(
        self,
        store_url: str,
        folder: Path,
        *,
        first: str = "",
        under: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        port: int = 0,
    ) -> None:
        self.folder = folder
        self.url = ""
        self.process: asyncio.subprocess.Process | nursery.Forked | None = None
        self._log = folder / f"central-{secrets.token_hex(4)}.log"
        self._arguments = ["central", "--store", store_url, "--folder", str(folder), "--port", str(port), "--log-json"]
        self._command = [*under, sys.executable, "-P", "-c", TETHER + first + MAIN, *self._arguments]
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("FIELDPOST_")}
        self._environment |= QUICK | dict(environment or {})
        # What is preloaded is so by the loader, at a program's start.
        self._is_forked = nursery.can_fork() and not first and not under and "LD_PRELOAD" not in self._environment

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_running:
            await self.kill()

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    async def start(self) -> None:
        """Start it, again if need be, and return once it serves."""
        self.folder.mkdir(parents=True, exist_ok=True)
        stdout = await self._begin()
        async with asyncio.timeout(START_S):
            while line := (await stdout.readline()).decode():
                if line.startswith("Central serves at "):
                    self.url = line.split()[-1]
                    return
        raise AssertionError(f"central did not start:\n{self._log.read_text()[-4000:]}")

    async def _begin(self) -> asyncio.StreamReader:
        with self._log.open("ab") as log:
            if self._is_forked:
                forked = await nursery.start(self._arguments, self._environment, self.folder, log)
                self.process = forked
                return await forked.read_stdout()
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=self._environment,
                cwd=self.folder,
            )
            self.process = process
            assert process.stdout is not None
            return process.stdout

    async def kill(self) -> None:
        """As the machine's end would: nothing is given back."""
        assert self.process is not None
        self.process.kill()
        await self.process.wait()

    def pause(self) -> None:
        """Stop the whole process in its tracks, as a frozen machine."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    async def stop(self) -> int:
        """SIGTERM; its exit code."""
        assert self.process is not None
        self.process.terminate()
        async with asyncio.timeout(STOP_S):
            return await self.process.wait()

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """What it has logged so far, of this name or all, the oldest first."""
        found = []
        for line in self._log.read_text(errors="replace").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:  # the line that is just being written, or another's complaint
                continue
            if isinstance(entry, dict) and name in (None, entry.get("event")):
                found.append(entry)
        return found

    def surprises(self) -> list[dict[str, Any]]:
        """What it logged with a traceback: troubles of the world have a word and need none."""
        return [e for e in self.events() if "exception" in e and re.fullmatch(r"[a-z]+\.[a-z_]+", e["event"])]

    @property
    def node_id(self) -> str:
        return str(self.events("central.started")[-1]["node_id"])

    async def until_logged(self, name: str, count: int = 1, timeout_s: float = 30.0) -> list[dict[str, Any]]:
        """These events, once there are so many."""
        await until(lambda: len(self.events(name)) >= count, timeout_s, f"{count} x {name}")
        return self.events(name)


def clock_off_by(seconds: float) -> str:
    """For `first`: the process's own clock is wrong by so much, as on a machine that was set wrongly."""
    return (
        "from datetime import timedelta; from fieldpost.clock import SystemClock; true_now = SystemClock.now; "
        f"SystemClock.now = lambda clock: true_now(clock) + timedelta(seconds={seconds}); "
    )


def clock_ahead_by(file: Path) -> str:
    """For `first`: the clock for durations is ahead by the seconds in this file, which may grow while it runs."""
    return (
        "from pathlib import Path; from fieldpost.clock import SystemClock; true_time = SystemClock.monotonic; "
        f"SystemClock.monotonic = lambda clock: true_time(clock) + float(Path({str(file)!r}).read_text()); "
    )


async def call(node: RunningCentral, token: str, method: str, path: str, body: object = None) -> Any:
    """What a node's API answers to a program with this token."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(headers=headers, raise_for_status=True) as session,
        session.request(method, f"{node.url}/api/v1/{path}", json=body) as answer,
    ):
        return await answer.json()


async def until(
    is_so: Callable[[], Any | Awaitable[Any]],
    timeout_s: float = 30.0,
    what: str = "it to be so",
    every_s: float = 0.05,
) -> Any:
    """Look again and again until it is so; what it then is. Raises TimeoutError that says what was waited for."""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                found = is_so()
                if isinstance(found, Awaitable):
                    found = await found
                if found:
                    return found
                await asyncio.sleep(every_s)
    except TimeoutError:
        raise TimeoutError(f"waited {timeout_s:g} s for {what}") from None
