"""Real `fieldpost relay` processes under test: started, paused, killed and stopped."""

import asyncio
import os
import secrets
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Self

from fieldpost.outbox.relay.options import RelayOptions
from support import nursery
from support.running_central import MAIN, TETHER

STOP_S = 30.0


class RelayProcess:
    """One relay with these options."""

    def __init__(self, options: RelayOptions, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.process: asyncio.subprocess.Process | nursery.Forked | None = None
        self._folder = folder
        self._log = folder / f"relay-{secrets.token_hex(4)}.log"
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("FIELDPOST_")}
        for option in fields(RelayOptions):
            if (value := getattr(options, option.name)) != option.default:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                self._environment[f"FIELDPOST_RELAY__{option.name.upper()}"] = text
        self._own_environment = bool(environment)
        self._environment |= dict(environment or {})

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    async def start(self) -> None:
        with self._log.open("ab") as log:
            if nursery.can_fork() and not self._own_environment:
                self.process = await nursery.start(["relay"], self._environment, self._folder, log)
                return
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-c", TETHER + MAIN, "relay"),
                env=self._environment,
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def freeze(self, may_stop_here: Callable[[], bool]) -> None:
        """Stop the whole process in its tracks at a moment when this holds."""
        assert self.process is not None
        async with asyncio.timeout(STOP_S):
            while True:
                self.send(signal.SIGSTOP)
                while not _is_stopped(self.process.pid):
                    await asyncio.sleep(0.001)
                if await asyncio.to_thread(may_stop_here):
                    return
                self.send(signal.SIGCONT)
                await asyncio.sleep(0.01)

    async def stop(self) -> int:
        """Stop it in order; its exit code."""
        assert self.process is not None
        self.process.terminate()
        async with asyncio.timeout(STOP_S):
            code = await self.process.wait()
        self.process = None
        return code

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        self.process = None


def _is_stopped(pid: int) -> bool:
    """Whether each of its threads has stopped: until then one may still take a lock."""
    states = (task.joinpath("stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir())
    return all(state.rpartition(")")[2].split()[0] == "T" for state in states)
