"""Central as it is reached: the application over a real store, with an account and a token for each role.

Nothing is dispatched until a test says so (`centre.deliver`), and what a delivery comes to is scripted, so that a page
or an answer shows what the test arranged.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import httpx2
from argon2 import PasswordHasher
from starlette.applications import Starlette
from starlette.types import ASGIApp

from fieldpost.central import adapters
from fieldpost.central.access.passwords import Passwords
from fieldpost.central.commands.sender import CommandSender
from fieldpost.central.dispatch.options import DispatchOptions
from fieldpost.central.ingest.mirror import MirrorOptions
from fieldpost.central.operate.operate import Operate
from fieldpost.central.secrets.key_files import SecretsOptions
from fieldpost.central.store.accounts import identities
from fieldpost.central.upkeep.options import UpkeepOptions
from fieldpost.central.watch.watch import Watch
from fieldpost.core.actor import USER_ROLES, Actor, Role
from fieldpost.core.delivery.outcome import PermanentFailure
from fieldpost.core.delivery.routing import traits_of
from fieldpost.core.notification import Status
from fieldpost.core.setting import EffectiveSettings
from fieldpost.front.app import create_app
from fieldpost.front.options import FrontOptions
from fieldpost.front.server import CentralServer
from fieldpost.front.tls import Certificate
from fieldpost.link import credentials
from fieldpost.run.effective_settings import effective_settings
from fieldpost.run.settings import CentralSettings
from fieldpost.testing import ManualClock
from support.centre import SITE, Centre, open_centre

ADMIN = Actor("admin", Role.ADMIN)
OPERATOR = Actor("operator", Role.OPERATOR)
VIEWER = Actor("viewer", Role.VIEWER)
OWNER = "acme"
SUBSCRIBER = Actor("subscriber", Role.SUBSCRIBER, subscription_owner=OWNER)
URL = "http://127.0.0.1"
NODE = "019b7892-1c00-7000-8000-000000000001"
SETTINGS = CentralSettings(
    dispatch=DispatchOptions(slots=32),
    upkeep=UpkeepOptions(audit_retention_days=90.0),
    secrets=SecretsOptions(key="canary-key"),
)
"""What the node says that it works by."""
ORIGINS = {
    "dispatch.slots": "file /etc/fieldpost/fieldpost.toml",
    "upkeep.audit_retention_days": "environment FIELDPOST_UPKEEP__AUDIT_RETENTION_DAYS",
    "secrets.key": "environment FIELDPOST_SECRETS__KEY",
}
CHEAP = PasswordHasher(time_cost=1, memory_cost=64)
"""Passwords are hashed cheaply where the hash is not on trial."""


@dataclass
class Front:
    """The application, what stands behind it, and the keys to it."""

    centre: Centre
    clock: ManualClock
    operate: Operate
    watch: Watch
    commands: CommandSender
    app: Starlette
    tokens: dict[str, str] = field(default_factory=dict)
    """API tokens by role, and site tokens by the site's name."""

    def password(self, name: str) -> str:
        return f"{name}'s own password"

    def client(self, caller: str | None = None, url: str = URL) -> httpx2.AsyncClient:
        """Speaks to the application without a socket, as this role or site, or as nobody."""
        headers = {"Authorization": f"Bearer {self.tokens[caller]}"} if caller else {}
        # A bug must arrive as the answer that a caller would get.
        transport = httpx2.ASGITransport(app=self.app, raise_app_exceptions=False)
        return httpx2.AsyncClient(transport=transport, base_url=url, headers=headers)

    async def park(self, error: str = "550 5.1.1 no such user", **more: Any) -> str:
        """A notification that parked after its first attempt."""
        await self._need_list()
        self.centre.adapter.answer("ops", PermanentFailure(error, phase="rcpt", reply=error))
        parked = await self.centre.send("ops", **more)
        await self.centre.deliver()
        assert (await self.centre.get(parked)).status is Status.PARKED
        # What an operator does comes after it, also by a clock that stands still.
        self.clock.advance(1)
        return parked

    async def deliver(self, **more: Any) -> str:
        """A notification that was delivered."""
        await self._need_list()
        delivered = await self.centre.send("ops", **more)
        await self.centre.deliver()
        assert (await self.centre.get(delivered)).status is Status.DELIVERED
        return delivered

    async def _need_list(self) -> None:
        if "ops" not in [found.name for found in await self.operate.lists.all()]:
            await self.centre.add_channel()
            await self.centre.add_list()


@asynccontextmanager
async def open_front(store_url: str, clock: ManualClock) -> AsyncIterator[Front]:
    """On this store, with accounts viewer, operator, admin and subscriber (of acme), and the site of the centre."""
    async with open_centre(store_url, clock) as centre:
        found = {adapter.type: adapter for adapter in (kind() for kind in _adapters())}
        operate = Operate.over(centre.store, found, clock, centre.keyring, passwords=Passwords(CHEAP), pool=centre.pool)
        traits = {name: traits_of(adapter) for name, adapter in found.items()}
        watch = Watch.over(centre.store, clock, keyring=centre.keyring, metrics=centre.metrics, types=traits)
        commands = CommandSender(centre.store, centre.ingest.mirrors, MirrorOptions().reconcile_interval_s, clock)
        app = create_app(operate, watch, centre.ingest, commands, effective_settings=_in_force())
        front = Front(centre, clock, operate, watch, commands, app)
        for role in USER_ROLES:
            await _add_account(front, role)
        await _add_token(front, Role.PUBLISHER, owner="admin")
        front.tokens["site"] = (await operate.sites.add(ADMIN, SITE)).token
        yield front


@asynccontextmanager
async def served(
    app: ASGIApp, options: FrontOptions | None = None, certificate: Certificate | None = None
) -> AsyncIterator[str]:
    """The application on a free port of loopback, as central serves it; its URL."""
    server = CentralServer(app, socket.create_server(("127.0.0.1", 0)), options, certificate)
    serving = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(20):
            await server.ready()
        yield server.url
    finally:
        server.should_exit = True
        await serving


@cache
def _adapters() -> tuple[type[Any], ...]:
    """The kinds that are installed. To find them takes longer than all the rest of opening a front."""
    return tuple(type(adapter) for adapter in adapters.load().values())


@cache
def _in_force() -> EffectiveSettings:
    """Read from the sources of all options."""
    return EffectiveSettings(NODE, effective_settings(SETTINGS, ORIGINS))


@cache
def _hashed(password: str) -> str:
    return CHEAP.hash(password)


async def _add_account(front: Front, role: Role) -> None:
    """An account named like its role, with a token."""
    store, now = front.centre.store, front.centre.clock.now()
    hashed = _hashed(front.password(role.value))
    owner = OWNER if role is Role.SUBSCRIBER else None
    user = identities.UserRecord(role.value, hashed, role.value, now, subscription_owner=owner)
    await store.write(identities.add_user, user)
    await _add_token(front, role, owner=role.value)


async def _add_token(front: Front, role: Role, owner: str) -> None:
    """A token named like its role."""
    token = credentials.issue("api", os.urandom(credentials.ENTROPY_BYTES))
    added = identities.TokenRecord(token.prefix, "api", token.digest, owner, role.value, front.centre.clock.now())
    named = replace(added, name=role.value if role is Role.PUBLISHER else None, generation=1)
    await front.centre.store.write(identities.add_token, named)
    front.tokens[role.value] = token.text
