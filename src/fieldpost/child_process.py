"""Child processes that work for this one: a job goes in as a line, answers come back as lines.

A child is a Python module that writes READY, then serves jobs from its standard input until that is closed. It gets no
environment variables. A child that fails, hangs or is interrupted in a job is killed, and another one is started when
it is needed: nothing inside a child has to be trusted.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

READY = b"ready\n"
START_S = 20.0
LINE_BYTES_MAX = 8 * 1024 * 1024


class ChildProcess:
    """One child process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.is_ready = True
        """Between jobs and alive."""

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    @classmethod
    async def start(cls, module: str) -> "ChildProcess":
        """Raises OSError, TimeoutError or EOFError if the child does not become ready."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            module,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
            limit=LINE_BYTES_MAX,
        )
        child = cls(process)
        try:
            async with asyncio.timeout(START_S):
                if await child.line() != READY:
                    raise EOFError("the child did not start")
        except BaseException:
            await child.kill()
            raise
        return child

    def begin(self, job: bytes) -> None:
        """Send a job. Not drained first: a child may answer while it still reads."""
        assert self._process.stdin is not None
        self.is_ready = False
        self._process.stdin.write(job + b"\n")

    def end(self) -> None:
        """The job has all its answers."""
        self.is_ready = True

    async def line(self) -> bytes:
        """The next line. EOFError if the child died."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise EOFError("the child ended")
        return line

    async def kill(self) -> None:
        self.is_ready = False
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


class ChildPool:
    """Children of one module, started when they are first needed."""

    def __init__(self, module: str, children: int) -> None:
        self._module = module
        self._idle: list[ChildProcess] = []
        self._free = asyncio.Semaphore(children)
        self._all: set[ChildProcess] = set()
        self._starting = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for the right to one child at a time."""
        async with self._free:
            yield

    @contextlib.asynccontextmanager
    async def child(self) -> AsyncIterator[ChildProcess]:
        """A living child, within a slot; one that is not ready in the end is killed. Raises as `ChildProcess.start`."""
        child = self._living()
        if child is None:
            child = await ChildProcess.start(self._module)
            self._all.add(child)
        try:
            yield child
        finally:
            if child.is_ready:
                self._idle.append(child)
            else:
                self._all.discard(child)
                await child.kill()

    async def start(self) -> None:
        """Start a child if there is none, so that the next job need not wait for that."""
        async with self._starting:
            if not self._all:
                child = await ChildProcess.start(self._module)
                self._all.add(child)
                self._idle.append(child)

    async def close(self) -> None:
        """End all children."""
        for child in tuple(self._all):
            await child.kill()
        self._all.clear()
        self._idle.clear()

    def _living(self) -> ChildProcess | None:
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
            self._all.discard(child)
        return None
