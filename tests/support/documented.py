"""Commands that the documentation shows with their output: run, and compared with what the page shows."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

LIMIT_S = 60.0
VARYING = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "ID"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?", "TIME"),
    (r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000", "TIME"),
    (r"fp_(join|link)_[^@\s]+", r"fp_\1_…"),
    (r"@[0-9a-f]{12}\.fieldpost", "@HEX.fieldpost"),
    (r" +$", ""),
    (r" {3,}", "  "),
    (r"(?<=dot  )\d+", "MS"),
]
ID = re.compile(VARYING[0][0])


@dataclass
class Step:
    """A command of the page, and the output that the page shows for it."""

    command: str
    shown: str


def steps_of(page: str) -> list[Step]:
    """The commands in the indented blocks of a page."""
    steps = []
    for block in re.findall(r"(?:^(?: {4}.*)?\n)+", page, re.MULTILINE):
        text = re.sub(r"^ {4}", "", block, flags=re.MULTILINE).strip("\n") + "\n"
        for command, shown in re.findall(r"^\$ ((?:.*\\\n)*.*\n)((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
            steps.append(Step(command.strip(), shown))
    return steps


def fits(shown: str, printed: str) -> bool:
    """Whether this was printed, apart from what differs at each run. The page leaves things out with `…`."""
    for pattern, put in VARYING:
        shown, printed = (re.sub(pattern, put, text, flags=re.MULTILINE) for text in (shown, printed))
    lines = [".*" if line == "…" else re.escape(line) for line in shown.split("\n")]
    wanted = "\n".join(line if line.endswith("_…") else re.sub("…$", ".*", line) for line in lines)
    return re.fullmatch(wanted, printed, re.DOTALL) is not None


@dataclass
class Terminals:
    """The folder of a tutorial, and what its programs print."""

    folder: Path
    environment: dict[str, str]
    """In addition to the path of the commands."""
    printed: dict[str, str] = field(default_factory=dict)

    @property
    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(self.folder), "COLUMNS": "200", **self.environment}

    @asynccontextmanager
    async def running(self, command: str, until: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """A program in a terminal of its own, once it has printed this."""
        process = await asyncio.create_subprocess_shell(
            f"exec {command}",
            cwd=self.folder,
            env=self._environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        name, stream = command.split()[1], process.stdout
        assert stream is not None
        self.printed[name] = ""

        async def follow() -> None:
            while data := await stream.read(65536):
                self.printed[name] += data.decode()

        following = asyncio.create_task(follow())
        try:
            await self.until(lambda: until in self.printed[name], name)
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
            await following

    async def run(self, command: str, *, may_fail: bool = False) -> str:
        """What a command prints; it must succeed."""
        process = await asyncio.create_subprocess_shell(
            command,
            cwd=self.folder,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output = (await process.communicate())[0].decode()
        assert may_fail or process.returncode == 0, (command, output)
        return output

    async def until(self, is_so: Callable[[], bool], what: str) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not is_so():
                await asyncio.sleep(0.05)
        assert is_so(), (what, self.printed)

    async def until_shown(self, step: Step, run: Callable[[str], Awaitable[str]]) -> None:
        """Repeat a query until it answers what the page shows."""
        printed = ""
        try:
            async with asyncio.timeout(LIMIT_S):
                while not fits(step.shown, printed := await run(step.command)):
                    pass
        except TimeoutError:
            raise AssertionError((step, printed)) from None
