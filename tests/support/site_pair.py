"""Two folders of one site, paired by the functions of `site pair init` and `join`."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fieldpost import Site
from fieldpost.clock import SystemClock
from fieldpost.link.credentials import issue
from fieldpost.link.endpoint import is_plain
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.pair import pair_state, replication
from fieldpost.site.config.folder import SETTINGS_FILE, Folder, read_folder
from fieldpost.site.pair import pairing
from support.ports import free_port
from support.site_folders import TOKEN

SITE = "plant-7"
CLOCK = SystemClock()


@dataclass
class SiteNode:
    """One machine of the pair."""

    path: Path
    node: int
    listen: str

    @property
    def folder(self) -> Folder:
        return read_folder(self.path)

    @contextmanager
    def opened(self) -> Iterator[Buffer]:
        with closing(Buffer(self.folder.buffer_path)) as buffer:
            yield buffer

    def send(self, subject: str = "Pump stopped") -> str:
        with Site.open(self.path) as site:
            return site.notify.to("operators").send(subject, "")

    def held(self) -> int:
        with self.opened() as buffer:
            return buffer.read(pair_state.get).held

    def is_leading(self) -> bool:
        with self.opened() as buffer:
            return buffer.read(pair_state.get).is_leading

    def rows(self, statement: str) -> list[tuple[object, ...]]:
        with self.opened() as buffer:
            return buffer.read(lambda cursor: cursor.execute(statement).fetchall())

    def lag(self) -> int:
        with self.opened() as buffer:
            return buffer.read(replication.behind, buffer.read(pair_state.acked))


def make_node(
    folder: Path, node: int, central_url: str = "http://127.0.0.1:9", token: str = TOKEN, more: str = ""
) -> SiteNode:
    """A folder with the token of this node; `more` is added to its settings."""
    Site.create(folder, SITE, central_url, token, allow_plain=is_plain(central_url)).close()
    file = folder / SETTINGS_FILE
    file.write_text(file.read_text().replace("\n\n", f"\nnode = {node}\n\n", 1) + more)
    return SiteNode(folder, node, f"127.0.0.1:{free_port()}")


@asynccontextmanager
async def inviting(
    node: SiteNode, *, replaces: bool = False
) -> AsyncIterator[tuple[str, "asyncio.Task[pairing.Paired]"]]:
    """`site pair init` while it waits, with its line."""
    lines: asyncio.Queue[str] = asyncio.Queue()
    entropy = issue("pair", bytes(range(40))).digest * 2
    with node.opened() as buffer:
        waiting = asyncio.create_task(
            pairing.invite(node.folder, buffer, node.listen, entropy, CLOCK, lines.put_nowait, replaces=replaces)
        )
        try:
            getting = asyncio.create_task(lines.get())
            await asyncio.wait({waiting, getting}, return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                getting.cancel()
                waiting.result()
            yield getting.result(), waiting
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)


async def join(node: SiteNode, line: str) -> pairing.Paired:
    """`site pair join`, once the other node listens."""
    from fieldpost.core.errors import Unavailable

    with node.opened() as buffer:
        async with asyncio.timeout(60):
            while True:
                try:
                    return await pairing.join(node.folder, buffer, line, node.listen, CLOCK)
                except Unavailable:
                    await asyncio.sleep(0.05)


async def make_pair(first: SiteNode, second: SiteNode) -> None:
    async with inviting(first) as (line, waiting):
        joined = await join(second, line)
        paired = await waiting
    assert joined.is_copied
    assert paired.is_copied
