"""The whole way with real processes: scripts send at a site, its agent forwards, central delivers to a mail server.

A run kills the agent or central at random moments while scripts send, starts it anew each time, and in the end compares
what `send()` returned with what the mail server has.
"""

import asyncio
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text

from fieldpost import Site
from fieldpost.central.store.engine.database_url import open_store
from fieldpost.testing import MailServer
from support import nursery
from support.ports import free_port
from support.running_central import MAIN, STOP_S, RunningCentral, call, until
from support.site_writers import ids_in
from support.verdict import Verdict, deliveries_of, judge

LISTS = ("ops", "it", "night")
PER_KEY = 8
IN_FLIGHT_MAX = PER_KEY * len(LISTS)
"""What one central process has under way at most, and so what its end may deliver twice."""
AHEAD_MAX = 100
"""So many more may be sent than delivered: the scripts still send when the last kill comes."""
SPACING_MIN = 40
"""So many deliveries between two kills: what a kill has orphaned is done before the next one comes."""
TIMEOUT_S = 60.0
FORWARD = "\n[forward]\ninterval_s = 0.2\npoll_s = 0.05\n"


class RunningAgent:
    """The process `fieldpost site` of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: asyncio.subprocess.Process | nursery.Forked | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("FIELDPOST_")}
        arguments = ["site", "--folder", str(self._folder)]
        with (self._folder / "agent.log").open("ab") as log:
            if nursery.can_fork():
                self._process = await nursery.start(arguments, environment, self._folder, log)
                return
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-c", MAIN, *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=log,
                env=environment,
                cwd=self._folder,
            )

    async def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    async def stop(self) -> int:
        """SIGTERM; its exit code."""
        assert self._process is not None
        self._process.terminate()
        async with asyncio.timeout(STOP_S):
            return await self._process.wait()


@dataclass
class Journey:
    """One site and one central, both running."""

    store_url: str
    mail: MailServer
    central: RunningCentral
    agent: RunningAgent
    site: Site
    site_folder: Path
    acked: list[str] = field(default_factory=list)
    """Every id that `send()` returned."""
    killed: Counter[str] = field(default_factory=Counter)

    async def send_until(self, stop: asyncio.Event, timeout_s: float) -> None:
        """Send until told to stop, never too far ahead of what is delivered."""
        while not stop.is_set():
            await self.mail.until(
                lambda: len(self.acked) - self.mail.mail_count < AHEAD_MAX, timeout_s=timeout_s, what="deliveries"
            )
            self.acked += await asyncio.to_thread(self._send_some, 10)

    async def kill_one(self, rng: random.Random, victims: tuple[str, ...], timeout_s: float) -> None:
        """After some more deliveries, and a moment by chance, kill one of the processes and start it anew."""
        victim = rng.choice(victims)
        enough = self.mail.mail_count + SPACING_MIN + rng.randrange(20)
        await self.mail.until(lambda: self.mail.mail_count >= enough, timeout_s=timeout_s, what="deliveries")
        # Not to wait for anything: without it every kill would come right after a delivery.
        await asyncio.sleep(rng.random() * 0.03)
        assert self.agent.is_running, "the agent ended by itself"
        assert self.central.is_running, "central ended by itself"
        process = self.agent if victim == "agent" else self.central
        await process.kill()
        self.killed[victim] += 1
        await process.start()

    async def arrive(self, timeout_s: float) -> None:
        """Wait until the mail server has everything."""
        wanted = set(self.acked)

        async def is_there() -> bool:
            await self._check_none_parked()
            return wanted <= {str(mail.header("X-Fieldpost-Id")) for mail in self.mail.mails}

        await until(is_there, timeout_s, f"all of {len(wanted)} to be delivered", every_s=0.2)

    async def _check_none_parked(self) -> None:
        token = (self.central.folder / "api-token").read_text().strip()
        found = await call(self.central, token, "GET", "notifications?status=parked")
        assert found["notifications"] == [], "a kill from outside is not the notification's fault"

    async def stop(self) -> None:
        """Both end in order, and leave nothing half done."""
        assert await self.agent.stop() == 0
        assert await self.central.stop() == 0
        assert await asyncio.to_thread(ids_in, self.site_folder / "buffer.db") == set(), "the buffer is whole and empty"

    async def verdict(self) -> Verdict:
        return judge(self.acked, deliveries_of(self.mail.mails), await statuses_of(self.store_url))

    def message_ids(self) -> dict[str, set[str]]:
        """Under which Message-IDs each notification arrived."""
        found: dict[str, set[str]] = {}
        for mail in self.mail.mails:
            found.setdefault(str(mail.header("X-Fieldpost-Id")), set()).add(str(mail.message_id))
        return found

    def _send_some(self, count: int) -> list[str]:
        return [
            self.site.notify.to(LISTS[number % len(LISTS)]).send(f"Pump {number} stopped", "No flow since 08:14.")
            for number in range(len(self.acked), len(self.acked) + count)
        ]


@asynccontextmanager
async def journey(store_url: str, folder: Path) -> AsyncIterator[Journey]:
    """A site whose agent runs, a central on this store, and a mail server; ends whatever still runs."""
    central = RunningCentral(store_url, folder / "central", port=free_port())
    async with MailServer(keep_raw=False) as mail, central:
        token = await furnish(central, mail)
        site_folder = folder / "site"
        with Site.create(site_folder, "plant-7", central.url, token) as site:
            with (site_folder / "site.toml").open("a") as settings:
                settings.write(FORWARD)
            agent = RunningAgent(site_folder)
            await agent.start()
            try:
                yield Journey(store_url, mail, central, agent, site, site_folder)
            finally:
                if agent.is_running:
                    await agent.kill()


async def kill_at_random(
    store_url: str, folder: Path, *, kills: int, victims: tuple[str, ...] = ("agent", "central")
) -> None:
    """Send while so many kills come. Everything must arrive; twice only what was under way at a kill."""
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**32))
    print(f"\nseed {seed}")
    rng = random.Random(seed)
    async with journey(store_url, folder) as run:
        async with asyncio.TaskGroup() as group:
            enough = asyncio.Event()
            group.create_task(run.send_until(enough, TIMEOUT_S))
            for _ in range(kills):
                await run.kill_one(rng, victims, TIMEOUT_S)
            enough.set()
        await run.arrive(TIMEOUT_S)
        await run.stop()
        verdict = await run.verdict()
    twice_max = run.killed["central"] * IN_FLIGHT_MAX
    print(
        f"{'valid' if verdict.is_whole else 'INVALID'}: killed {dict(run.killed)}, acked {verdict.acked},"
        f" lost {len(verdict.lost)}, stuck {len(verdict.stuck)}, unexpected {len(verdict.unexpected)},"
        f" duplicate {verdict.copies_too_many} (at most {twice_max})"
    )
    assert verdict.is_whole, verdict
    assert verdict.acked == len(run.acked)
    assert verdict.copies_too_many <= twice_max
    for notification_id, message_ids in run.message_ids().items():
        assert len(message_ids) == 1, "a second copy can be recognised as one"
        assert notification_id in message_ids.pop()


async def furnish(central: RunningCentral, mail: MailServer) -> str:
    """A channel, the lists and a site; the site's token."""
    token = (central.folder / "api-token").read_text().strip()
    settings: dict[str, Any] = {"host": mail.host, "port": mail.port, "tls": "none"}
    settings |= {"from_address": "alerts@plant.example"}
    channel = {"name": "mail", "type": "email", "settings": settings, "is_default": True, "retry_delay_s": 1.0}
    await call(central, token, "POST", "channels", channel)
    for name in LISTS:
        await call(central, token, "POST", "lists", {"name": name, "targets": [f"{name}@plant.example"]})
    return str((await call(central, token, "POST", "sites", {"name": "plant-7"}))["token"])


async def statuses_of(url: str) -> dict[str, str]:
    """The status of every row of a store on which no central works."""

    def look(conn: Connection) -> dict[str, str]:
        rows = conn.execute(text("select notification_id, status from notifications"))
        return {str(row.notification_id): row.status for row in rows}

    store = open_store(url)
    try:
        return await store.read(look)
    finally:
        await store.close()
