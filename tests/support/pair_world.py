"""A site of two nodes, central and a target that counts by operation id: real processes in network namespaces."""

import asyncio
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fieldpost import Site
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.testing import HttpServerThread
from fieldpost.testing.http.server import HttpReaction, ReceivedRequest
from support.cluster import TOKEN_FILE
from support.node_process import NodeProcess, definitions
from support.pair_buffers import differing
from support.pair_network import PairNetwork
from support.running_central import MAIN, RunningCentral, call, until
from support.site_pair import SITE, SiteNode, make_node

PAIR_PORT = 8027
CALLER = Path(__file__).with_name("pair_caller.py")


class CountingTarget:
    """Counts attempts and deliveries by operation id; refuses while `is_down`."""

    def __init__(self) -> None:
        self.is_down = False
        self.delay_s = 0.0
        self.attempts: Counter[str] = Counter()
        self.delivered: Counter[str] = Counter()

    def __call__(self, request: ReceivedRequest) -> HttpReaction | None:
        operation = request.headers["idempotency-key"]
        self.attempts[operation] += 1
        if self.is_down:
            return HttpReaction(503)
        self.delivered[operation] += 1
        return HttpReaction(200, delay_s=self.delay_s)


@dataclass
class OpenedNode:
    """A node and its open buffer."""

    node: int
    buffer: Buffer


@dataclass
class PairWorld:
    """The running parts."""

    network: PairNetwork
    central: RunningCentral
    token: str
    nodes: tuple[NodeProcess, NodeProcess]
    target: CountingTarget
    code: str
    """The one-time code with which the pair was made."""

    async def leader(self) -> NodeProcess:
        """The node that executes, once one of the two does."""

        async def found() -> NodeProcess | None:
            for node in self.nodes:
                if await node.executes():
                    return node
            return None

        leader: NodeProcess = await until(found, 60, "a leader")
        return leader

    def other(self, node: NodeProcess) -> NodeProcess:
        return self.nodes[1 - node.node.node]

    async def issue(self, node: NodeProcess, system: str = "erp") -> str:
        """A script's call on this machine."""
        call_id = await self.try_issue(node, system)
        assert call_id is not None
        return call_id

    async def try_issue(self, node: NodeProcess, system: str = "erp") -> str | None:
        """The same; None if the buffer refused it."""
        program = node.first + (
            "import sys; from fieldpost import Site; site = Site.open(sys.argv[1]); "
            "print(site.external(sys.argv[2]).call('POST', '/orders', json={}))"
        )
        command = [*self.network.under(node.node.node), sys.executable, "-c", program, str(node.node.path), system]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, error = await process.communicate()
        assert process.returncode == 0 or b"is kept busy" in error, error
        return out.decode().strip() or None

    async def mirror(self) -> dict[str, str]:
        """The status of each call in central's mirror; `gone` if the site has lost it."""
        found: dict[str, str] = {}
        cursor: str | None = ""
        while cursor is not None:
            page = await self.api("GET", "cached-calls?limit=200" + (f"&cursor={cursor}" if cursor else ""))
            found |= {row["call_id"]: "gone" if row["gone_at"] else row["status"] for row in page["cached_calls"]}
            cursor = page["next_cursor"]
        return found

    async def api(self, method: str, path: str, body: object = None) -> Any:
        return await call(self.central, self.token, method, path, body)

    async def ask_port(self, node: NodeProcess, how: str, *folders: Path) -> list[str]:
        """The answers of the node's port to `support.pair_caller`, on the other machine."""
        host, _, port = node.node.listen.rpartition(":")
        command = [sys.executable, str(CALLER), how, host, port, *map(str, folders)]
        process = await asyncio.create_subprocess_exec(
            *self.network.under(1 - node.node.node), *command, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
        assert process.returncode == 0
        answers: list[str] = json.loads(out)
        return answers

    async def received(self) -> dict[str, str]:
        """The status of each notification at central."""
        found: dict[str, str] = {}
        cursor: str | None = ""
        while cursor is not None:
            page = await self.api("GET", "notifications?limit=200" + (f"&cursor={cursor}" if cursor else ""))
            for row in page["notifications"]:
                assert row["notification_id"] not in found, "one row each"
                found[row["notification_id"]] = row["status"]
            cursor = page["next_cursor"]
        return found

    async def has_received(self, sent: Sequence[str]) -> bool:
        """Whether central has all these notifications."""
        return set(sent) <= set(await self.received())

    def differing(self) -> list[str]:
        """The kinds of rows in which the buffers of both nodes differ, by digest."""
        with self.nodes[0].node.opened() as one, self.nodes[1].node.opened() as other:
            return differing(OpenedNode(0, one), OpenedNode(1, other))

    async def settled(self, calls: Sequence[str]) -> None:
        """Wait until all is well after faults: all calls are delivered on both nodes, the buffers are equal, and
        central's mirror equals the tracking tables.
        """
        await until(lambda: self.all_delivered(calls), 120, "the results on both nodes")

        async def are_equal() -> bool:
            lags = [(await node.pair())["lag_changes"] for node in self.nodes]
            return lags == [0, 0] and not await asyncio.to_thread(self.differing)

        async def is_mirrored() -> bool:
            records = await asyncio.to_thread(self.nodes[0].node.rows, "SELECT call_id, status FROM tracking")
            return dict(records) == await self.mirror()

        await until(are_equal, 60, "equal buffers")
        await until(is_mirrored, 120, "the mirror to equal the tracking table")

    async def all_delivered(self, operations: Sequence[str]) -> bool:
        """Whether both nodes and central's mirror have all of them as delivered."""
        for node in self.nodes:
            rows = await asyncio.to_thread(node.node.rows, "SELECT call_id FROM tracking WHERE status = 'delivered'")
            if not set(operations) <= {row[0] for row in rows}:
                return False
        return True


@asynccontextmanager
async def pair_world(folder: Path, more: str = "") -> AsyncIterator[PairWorld]:
    """A pair with a leader, made by the commands of the command line."""
    target = CountingTarget()
    with PairNetwork() as network, HttpServerThread(host="0.0.0.0", on_request=target) as server:
        store = f"sqlite:///{folder}/central.db"
        environment = {"FIELDPOST_CENTRAL__HOST": "0.0.0.0"}
        async with RunningCentral(store, folder / "central", environment=environment) as central:
            central.url = central.url.replace("0.0.0.0", "127.0.0.1")
            token = (central.folder / TOKEN_FILE).read_text().strip()
            tokens = [
                (await call(central, token, "POST", "sites", {"name": SITE}))["token"],
                (await call(central, token, "POST", f"sites/{SITE}/add-node", {}))["token"],
            ]
            port = central.url.rpartition(":")[2]
            nodes = [
                _make_node(folder, network, node, f"http://{network.central_address(node)}:{port}", one, server, more)
                for node, one in enumerate(tokens)
            ]
            code = await _pair(network, nodes)
            processes = [NodeProcess(node, *network.under(node.node)) for node in nodes]
            async with processes[0], processes[1]:
                world = PairWorld(network, central, token, (processes[0], processes[1]), target, code)
                await world.leader()
                yield world


def _make_node(
    folder: Path, network: PairNetwork, node: int, url: str, token: str, server: HttpServerThread, more: str
) -> SiteNode:
    address = f"http://{network.target_address(node)}:{server.url.rpartition(':')[2]}"
    settings = definitions(address).replace("timeout_s = 5\n", "timeout_s = 5\nallows_plain_http = true\n")
    made = make_node(folder / "ab"[node], node, url, token, settings + more)
    made.listen = f"{network.node_address(node)}:{PAIR_PORT}"
    return made


async def _pair(network: PairNetwork, nodes: Sequence[SiteNode]) -> str:
    """`site pair init` and `join`, each on its machine; returns the one-time code."""
    command = [sys.executable, "-c", MAIN, "site", "pair"]
    first, second = nodes
    init = await asyncio.create_subprocess_exec(
        *network.under(0),
        *command,
        *("init", "--json", "--listen", first.listen, "--folder", str(first.path)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert init.stdout is not None
    line = json.loads(await init.stdout.readuntil(b"}\n"))["line"]

    async def has_joined() -> bool:
        join = await asyncio.create_subprocess_exec(
            *network.under(1),
            *command,
            *("join", line, "--json", "--listen", second.listen, "--folder", str(second.path)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        _, error = await join.communicate()
        assert join.returncode == 0 or b"pair.unreachable" in error, error
        return join.returncode == 0

    await until(has_joined, 60, "the second machine to join")
    await init.communicate()
    assert init.returncode == 0
    code: str = line.partition("@")[0]
    return code


async def is_copied(node: NodeProcess) -> bool:
    """Whether the other node has all changes of this one."""
    return bool((await node.pair())["lag_changes"] == 0)


async def wait_copied(*nodes: NodeProcess) -> None:
    for node in nodes:
        await until(lambda node=node: is_copied(node), 60, "an empty lag")


def send_in_a_loop(folder: Path, count: int) -> list[float]:
    """The seconds that each `send` took."""
    script = SendingScript(folder, count)
    script.run()
    return script.took


class SendingScript(threading.Thread):
    """A script on this machine that sends in a loop, `count` times or until it is ended."""

    def __init__(self, folder: Path, count: int = 100_000) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self._count = count
        self._is_over = threading.Event()
        self.sent: list[str] = []
        self.took: list[float] = []
        """The seconds that each `send` took."""
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with Site.open(self._folder) as site:
                while len(self.sent) < self._count and not self._is_over.wait(0.01):
                    began = time.monotonic()
                    self.sent.append(site.notify.to("operators").send(f"number {len(self.sent)}", ""))
                    self.took.append(time.monotonic() - began)
        except BaseException as error:
            self.error = error

    async def end(self) -> None:
        """End it; raises the error with which a `send` failed."""
        self._is_over.set()
        await asyncio.to_thread(self.join)
        if self.error is not None:
            raise self.error
