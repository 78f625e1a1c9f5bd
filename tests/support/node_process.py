"""The agent of one node of a pair as a process: started, killed, frozen, and asked for its state."""

import asyncio
import os
import signal
import sys
from types import TracebackType
from typing import Any, Self

from fieldpost.cli.local.agent_socket import ask_agent
from fieldpost.core.errors import FieldpostError
from support.running_central import MAIN, TETHER, until
from support.site_pair import SiteNode

START_S = 40.0


class NodeProcess:
    """One agent. `under` is a command to run it under, such as `ip netns exec NAME`."""

    def __init__(self, node: SiteNode, *under: str) -> None:
        self.node = node
        self._under = under
        self.first = ""
        self.process: asyncio.subprocess.Process | None = None
        self._log = node.path / "agent.log"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()

    async def start(self, first: str = "") -> None:
        """`first` is a program that its process runs first, and those of its machine's scripts."""
        self.first = first
        command = [*self._under, sys.executable, "-c", TETHER + first + MAIN, "site", "--folder", str(self.node.path)]
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
        await until(self.state, START_S, "the agent to answer")

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return await asyncio.wait_for(self.process.wait(), 30)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    async def state(self) -> dict[str, Any] | None:
        """`GET /v1/site` of the agent; None if it does not answer."""
        return await asyncio.to_thread(self._ask, "GET", "/v1/site", None)

    async def pair(self) -> dict[str, Any]:
        found = await self.state()
        assert found is not None, self.log
        pair: dict[str, Any] = found["pair"]
        return pair

    async def executes(self) -> bool:
        found = await self.state()
        return found is not None and found["pair"]["grounds"] is not None

    async def switch(self, action: str, **body: object) -> dict[str, Any]:
        return await asyncio.to_thread(
            ask_agent, self.node.path, "POST", f"/v1/pair/{action}", dict(body), timeout_s=120
        )

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def _ask(self, method: str, path: str, body: dict[str, object] | None) -> dict[str, Any] | None:
        try:
            return ask_agent(self.node.path, method, path, body, timeout_s=10)
        except FieldpostError:
            return None

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)


def definitions(url: str) -> str:
    """Settings of a node: a target that is retried soon, and quick polling."""
    return (
        f'\n[external.erp]\nurl = "{url}"\ntimeout_s = 5\nretry_interval_s = 0.2\nretries_max = 1000\n'
        "\n[report]\nreconnect_interval_s = 0.2\npoll_s = 0.1\n\n[forward]\ninterval_s = 0.5\npoll_s = 0.05\n"
    )
