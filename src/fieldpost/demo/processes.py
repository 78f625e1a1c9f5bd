"""All processes of one demo. The receiving end starts first and stops last."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import msgspec

from fieldpost.clock import Clock
from fieldpost.demo.children import Child, stop_together
from fieldpost.demo.pair import SECOND
from fieldpost.demo.protocol import AgentPart, CentralPart, DemoPart, Report, ScriptPart, SentByScript, Serves
from fieldpost.demo.scenario import SITES
from fieldpost.demo.terminal import Terminal
from fieldpost.demo.welcome import Login

SCRIPT_GRACE_S = 2.0
AGENT_GRACE_S = 3.0
CENTRAL_GRACE_S = 6.0


class Processes:
    """An async context manager that stops all processes at its end. A process that cannot run ends the body.

    With `is_strict` no process may die; else it is started again, a few times.
    """

    def __init__(self, folder: Path, lock_handle: int, clock: Clock, terminal: Terminal, *, is_strict: bool) -> None:
        self._folder = folder
        self._lock_handle = lock_handle
        self._clock = clock
        self._terminal = terminal
        self._is_strict = is_strict
        self._group = asyncio.TaskGroup()
        self._central: list[Child] = []
        self._agents: list[Child] = []
        self._scripts: list[Child] = []

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await stop_together(self._scripts, SCRIPT_GRACE_S)
        await stop_together(self._agents, AGENT_GRACE_S)
        await stop_together(self._central, CENTRAL_GRACE_S)
        await self._group.__aexit__(kind, error, trace)

    def kill(self) -> None:
        """Kill all processes."""
        for child in (*self._scripts, *self._agents, *self._central):
            child.kill()

    async def start_central(self, store: str, port: int, trust_file: Path, *, may_move: bool) -> Serves:
        """Start central and wait for its address. After a restart it uses the same port, which the sites know."""
        self._terminal.say(f"Starting central on {'PostgreSQL' if store.startswith('postgres') else 'SQLite'} …")
        serves: asyncio.Future[Serves] = asyncio.get_running_loop().create_future()
        part = CentralPart(str(self._folder / "central"), str(self._login_file), store, port, may_move, str(trust_file))

        def heard(report: Report) -> None:
            if isinstance(report, Serves) and not serves.done():
                central.part = msgspec.structs.replace(part, port=urlsplit(report.url).port, may_move=False)
                serves.set_result(report)

        central = self._start("central", part, heard)
        self._central.append(central)
        return await serves

    def start_sites(self, pause_s: float, on_sent: Callable[[SentByScript], None], *, has_pair: bool = False) -> None:
        """Start the agents, and the scripts, which pause this many seconds between notifications."""

        def heard(report: Report) -> None:
            if isinstance(report, SentByScript):
                on_sent(report)

        for number, role in enumerate(SITES):
            folder = str(self._folder / role.name)
            script = ScriptPart(folder, role.name, first_s=number * pause_s / len(SITES), pause_s=pause_s)
            self._agents.append(self._start(f"{role.name}-agent", AgentPart(folder), heard))
            self._scripts.append(self._start(f"{role.name}-script", script, heard))
        if has_pair:
            self._agents.append(self._start(f"{SECOND}-agent", AgentPart(str(self._folder / SECOND)), heard))

    def login(self) -> Login | None:
        """The administrator that central's first start created, if that was in this folder."""
        try:
            return msgspec.json.decode(self._login_file.read_bytes(), type=Login)
        except (OSError, msgspec.DecodeError):
            return None

    @property
    def _login_file(self) -> Path:
        return self._folder / "login.json"

    def _start(self, name: str, part: DemoPart, on_report: Callable[[Report], None]) -> Child:
        child = Child(
            name,
            part,
            self._folder / "logs" / f"{name}.log",
            self._lock_handle,
            self._clock,
            on_report=on_report,
            on_death=None if self._is_strict else self._report_death,
        )
        self._group.create_task(child.run(), name=name)
        return child

    def _report_death(self, story: str) -> None:
        self._terminal.say(f"{story}\nStarting it again.", "yellow")
