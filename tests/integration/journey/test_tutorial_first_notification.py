"""The first tutorial: its commands and programs are run in their order, and print what the page shows."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.ports import free_port

PAGE = "docs/tutorial/first-notification.md"
LIMIT_S = 60.0
QUICK = {
    "FIELDPOST_DISPATCH__INTERVAL_S": "0.5",
    "FIELDPOST_DISPATCH__BREAKER_HOLD_S": "3",
    "FIELDPOST_DISPATCH__BREAKER_BREAK_S": "1",
}
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
    """The commands after the demo."""
    steps = []
    for block in re.findall(r"(?:^(?: {4}.*)?\n)+", page.partition("\n## 3. ")[2], re.MULTILINE):
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
    """The folder of the tutorial, and what its programs print."""

    folder: Path
    environment: dict[str, str]
    printed: dict[str, str] = field(default_factory=dict)

    @asynccontextmanager
    async def running(self, command: str, until: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """A program in a terminal of its own, once it has printed this."""
        process = await asyncio.create_subprocess_shell(
            f"exec {command}",
            cwd=self.folder,
            env=self.environment,
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

    async def run(self, command: str) -> str:
        process = await asyncio.create_subprocess_shell(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output = (await process.communicate())[0].decode()
        assert process.returncode == 0, (command, output)
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


async def test_the_documented_steps_print_what_the_page_shows(project: Path, tmp_path: Path) -> None:
    page = (project / PAGE).read_text()
    port, mail_port = free_port(), free_port()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    terminals = Terminals(
        tmp_path,
        {"PATH": path, "HOME": str(tmp_path), "COLUMNS": "200", "FIELDPOST_URL": f"http://127.0.0.1:{port}", **QUICK},
    )
    ids: dict[str, str] = {}
    """The ids that the page shows, and those that this run got."""

    def here(text: str) -> str:
        for shown, got in ids.items():
            text = text.replace(shown, got)
        return text.replace("2525", str(mail_port)).replace(":8025", f":{port}")

    async def run(command: str) -> str:
        printed = await terminals.run(here(command))
        return printed.replace(str(mail_port), "2525").replace(f":{port}", ":8025")

    for name, program in re.findall(r"`(\w+\.py)`[^`]*```python\n(.+?)^```$", page, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(here(program))
    catch, central, *steps = steps_of(page)
    assert (catch.command, central.command) == ("python catcher.py", "fieldpost central")
    agent = "fieldpost site --folder pump-station"
    assert f"`{agent}`" in page
    joining = ""
    async with AsyncExitStack() as stack:
        catcher = await stack.enter_async_context(terminals.running(catch.command, "Enter ends it"))
        serving = await stack.enter_async_context(
            terminals.running(f"{central.command} --port {port}", "fieldpost-data/api-token.\n")
        )
        started = terminals.printed["central"].replace(f":{port}", ":8025")
        assert fits(central.shown, "".join(started.partition("fieldpost-data/api-token.\n")[:2])), started

        for step in steps:
            if step.shown.startswith("delivered"):
                await stack.enter_async_context(terminals.running(agent, "agent.started"))
                await terminals.until_shown(step, run)
                continue
            if step.command.startswith("python alarm"):
                assert catcher.stdin is not None
                catcher.stdin.write(b"\n")
                await catcher.wait()
            if "explain" in step.command:
                await terminals.until_shown(step, run)
                continue
            if "site join" in step.command:
                step.command = joining
            printed = await run(step.command)
            assert fits(step.shown, printed), (step, printed)
            for shown, got in zip(ID.findall(step.shown), ID.findall(printed), strict=False):
                ids.setdefault(shown, got)
            if "sites add" in step.command:
                joining = re.findall(r"^ +(fieldpost site join .+)$", printed, re.MULTILINE)[0]

        [mail] = re.findall(r"^ {4}to ada@.+?…$", page, re.MULTILINE | re.DOTALL)
        received = terminals.printed["catcher.py"].partition("\n")[2].replace("\r\n", "\n")
        assert fits(re.sub(r"^ {4}", "", mail, flags=re.MULTILINE), received), received

        serving.terminate()
        await serving.wait()
        missed = await run('fieldpost send --folder pump-station --to operators --subject "Pump 4 stopped" "No flow."')
        site = "event='forwarding.failed' code='link.unreachable'"
        await terminals.until(lambda: site in terminals.printed["site"], "the agent's failure")
        await stack.enter_async_context(terminals.running(catch.command, "Enter ends it"))
        await stack.enter_async_context(terminals.running(f"{central.command} --port {port}", "Central serves at"))
        status = f"fieldpost status --folder pump-station {missed.strip()}"
        await terminals.until_shown(Step(status, "delivered, at 2026-11-15T08:55:40Z\n"), run)
        await terminals.until(lambda: "event='forwarding.resumed' failing_since=" in terminals.printed["site"], "more")
        await terminals.until(lambda: terminals.printed["catcher.py"].count("Subject: Pump") == 2, "both mails")
