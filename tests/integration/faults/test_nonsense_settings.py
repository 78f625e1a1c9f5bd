"""A channel's settings edited to nonsense while mail goes out: nothing parks, all of it arrives after the repair."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.central.operate.channels import ChannelActions
from fieldpost.central.store.figures import kpis
from fieldpost.clock import SystemClock
from fieldpost.core.delivery.breaker import BreakerState
from fieldpost.core.notification import Status
from fieldpost.testing import MailServer
from fieldpost.testing.mail import Limits
from support.centre import Centre, open_centre
from support.front import ADMIN
from support.running_central import until

COUNTS = {"port": 1000, "host": 200, "tls": 200, "password": 200}
"""How many are sent meanwhile: a thousand once; the other kinds of nonsense differ in how an attempt fails."""
PASSWORD = "the right one"
NONSENSE: dict[str, dict[str, Any]] = {
    "port": {"settings": {"port": 1}},
    "host": {"settings": {"host": "127.0.0.9", "auth": None, "username": None}, "secrets": {"password": None}},
    "tls": {"settings": {"tls": "implicit"}},
    "password": {"secrets": {"password": "a wrong one"}},
}


@pytest.mark.fault(69)
@pytest.mark.parametrize(("store", "what"), list(zip(("sqlite_url", "pg_url") * 2, NONSENSE, strict=True)))
async def test_invalid_channel_settings_delay_but_lose_nothing(
    request: pytest.FixtureRequest, store: str, what: str
) -> None:
    store_url, count = request.getfixturevalue(store), COUNTS[what]
    async with (
        MailServer(
            auth=lambda given: given.secret == PASSWORD,
            is_auth_required=True,
            keep_raw=False,
            limits=Limits(mails_kept=20_000),  # so many are never sent before the breaker opens
        ) as server,
        open_centre(store_url, SystemClock()) as centre,
    ):
        adapter = EmailAdapter()
        centre.adapters = {"email": adapter}
        channels = ChannelActions(centre.store, centre.adapters, centre.clock, centre.keyring)
        right = {
            "host": "127.0.0.1",
            "port": server.port,
            "tls": "none",
            "from_address": "alerts@plant.example",
            "auth": "basic",
            "username": "alerts",
        }
        await channels.add(ADMIN, "mail", "email", right, {"password": PASSWORD}, is_default=True)
        for number in range(8):
            await centre.add_list(f"list-{number}", f"ops-{number}@example.org")
        dispatching = asyncio.create_task(centre.dispatcher().run())
        try:
            sent = await send(centre, 100)
            await server.received(50)
            wrong = {"settings": {}, "secrets": {"password": PASSWORD}} | NONSENSE[what]
            await channels.change(ADMIN, "mail", version=1, **wrong)
            async with asyncio.timeout(30):
                while not await is_open(centre):  # the dispatcher learns of the change within a second
                    sent += await send(centre, 8)
            sent += await send(centre, max(0, count - len(sent)))
            await channels.change(ADMIN, "mail", right, 2, secrets={"password": PASSWORD})
            await until(lambda: is_done(centre), 60, "all to be delivered")
        finally:
            dispatching.cancel()
            await asyncio.gather(dispatching, return_exceptions=True)
            await adapter.close()
        assert (await centre.store.read(kpis.count_by_status))[Status.DELIVERED] == len(sent) >= count
        copies = Counter(mail.message_id for mail in server.mails)
        assert (len(copies), set(copies.values())) == (len(set(sent)), {1})


async def send(centre: Centre, count: int) -> list[str]:
    sent = [await centre.send(f"list-{number % 8}") for number in range(count)]
    centre.store.wake.set()
    return sent


async def is_open(centre: Centre) -> bool:
    return (await centre.breaker()).state is not BreakerState.CLOSED


async def is_done(centre: Centre) -> bool:
    counts = await centre.store.read(kpis.count_by_status)
    return not counts.get(Status.PENDING) and not counts.get(Status.RETRYING)
