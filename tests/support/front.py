"""A central without its loops: store, ingest, operate, watch, and the application served by uvicorn on loopback.

Nothing is dispatched until a test says so (`sweep`), so that a page or an answer shows what the test arranged.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import uvicorn
from fastapi import FastAPI

from fieldpost.central import adapters
from fieldpost.central.dispatch.dispatcher import Dispatcher
from fieldpost.central.dispatch.options import DispatchOptions
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.operate.operate import Operate
from fieldpost.central.store import identities
from fieldpost.central.store.engine import Store, open_store
from fieldpost.central.watch.watch import Watch
from fieldpost.clock import Clock, SystemClock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.ids import new_id
from fieldpost.front.app import create_app
from fieldpost.link import credentials
from fieldpost.link.messages import FRAME_BYTES_MAX, Item, Submit

ADMIN = Actor("admin", Role.ADMIN)
PASSWORDS = {Role.VIEWER: "viewer's password", Role.OPERATOR: "operator's password", Role.ADMIN: "admin's password"}


@dataclass
class Front:
    """What a test arranges, and the application over it."""

    store: Store
    clock: Clock
    operate: Operate
    watch: Watch
    ingest: Ingest
    app: FastAPI
    tokens: dict[Role, str] = field(default_factory=dict)
    """API tokens, one for each role."""
    site_tokens: dict[str, str] = field(default_factory=dict)

    async def add_site(self, name: str) -> str:
        added = await self.operate.sites.add(ADMIN, name)
        self.site_tokens[name] = added.token
        return added.token

    async def submit(
        self, subject: str = "Pump 3 is hot", *, site: str = "plant-1", list_name: str = "ops", body: str = "92 °C",
        enqueued_at: str | None = None, script: str | None = None, notification_id: str | None = None,
    ) -> str:  # fmt: skip
        """A notification that this site sent; its id."""
        wanted = notification_id or new_id(self.clock.now(), os.urandom(10))
        item = Item(wanted, list_name, subject, body, enqueued_at=enqueued_at, script=script)
        ack = await self.ingest.submit(site, Submit(1, (item,)))
        assert [result.verdict for result in ack.results] == ["accepted"], ack
        return wanted

    async def sweep(self, options: DispatchOptions | None = None) -> None:
        """Let a dispatcher attempt what is due, once, and write what came of it."""
        dispatcher = Dispatcher(
            self.store, adapters.load(), new_id(self.clock.now(), os.urandom(10)), self.clock, random.Random(1), options
        )
        running = asyncio.create_task(dispatcher.run())
        try:
            async with asyncio.timeout(30):
                while await self._due():
                    await asyncio.sleep(0.01)
        finally:
            dispatcher.stop()
            await running

    async def park(self, subject: str = "Pump 3 is hot", *, site: str = "plant-1") -> str:
        """A notification that parked, because its list does not exist."""
        parked = await self.submit(subject, site=site, list_name="nobody")
        await self.sweep()
        return parked

    async def _due(self) -> int:
        page = await self.watch.notifications.page(limit=200)
        now = self.clock.now()
        return sum(n.due_at is not None and n.due_at <= now for n in (line.notification for line in page.lines))


@asynccontextmanager
async def front(store_url: str, clock: Clock | None = None) -> AsyncIterator[Front]:
    """The rooms on this store, with an account and an API token for each role, and a site named plant-1."""
    clock = clock or SystemClock()
    store = open_store(store_url)
    try:
        operate = Operate.over(store, adapters.load(), clock)
        watch = Watch.over(store, clock)
        ingest = Ingest(store, clock)
        made = Front(store, clock, operate, watch, ingest, create_app(operate, watch, ingest))
        await _add_accounts(made, PASSWORDS)
        await made.add_site("plant-1")
        yield made
    finally:
        await store.close()


@asynccontextmanager
async def served(app: FastAPI, headers: Sequence[tuple[str, str]] = ()) -> AsyncIterator[str]:
    """The application on a free port of loopback, as central serves it; its URL."""
    config = uvicorn.Config(
        app,
        port=0,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="websockets-sansio",
        ws_max_size=FRAME_BYTES_MAX,
        timeout_graceful_shutdown=2,
        headers=list(headers),
    )
    server = _Server(config)
    serving = asyncio.create_task(server._serve())
    try:
        async with asyncio.timeout(20):
            await server.is_up.wait()
        host, port = server.servers[0].sockets[0].getsockname()[:2]
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        await serving


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    async def startup(self, sockets: list | None = None) -> None:  # type: ignore[type-arg]
        await super().startup(sockets)
        self.is_up.set()


async def _add_accounts(made: Front, passwords: Mapping[Role, str]) -> None:
    """An operator of each role, named like it, with an API token; hashed cheaply, since the rule is not on trial."""
    from argon2 import PasswordHasher

    hasher = PasswordHasher(time_cost=1, memory_cost=64)
    now = made.clock.now()
    for role, password in passwords.items():
        token = credentials.issue("api", os.urandom(credentials.ENTROPY_BYTES))
        await made.store.write(identities.add_operator, role.value, hasher.hash(password), role.value, now)
        await made.store.write(identities.add_token, "api", token.prefix, token.digest, role.value, role.value, now)
        made.tokens[role] = token.text
