"""The whole way of a mail: store, dispatcher, adapter and a mail server that misbehaves, on both databases."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.central.store.notifications import lists
from fieldpost.core.notification import Status
from fieldpost.testing import MailServer, ManualClock
from support.centre import Centre, open_centre

A, B, C = "anna@plant.example", "bert@plant.example", "cleo@plant.example"


async def add_channel(centre: Centre, server: MailServer, name: str = "mail", **more: object) -> None:
    settings = {"host": server.host, "port": server.port, "tls": "none", "from_address": "alerts@plant.example"}
    await centre.add_channel(name, **settings | more)


@pytest.fixture
async def server() -> AsyncIterator[MailServer]:
    async with MailServer() as server:
        yield server


@pytest.mark.fault(38)
@pytest.mark.dec("DEC-11")
async def test_mixed_list_over_a_restart_gets_one_copy_each_and_parks_naming_the_rejected_target(
    store_url: str, clock: ManualClock, server: MailServer
) -> None:
    later = server.on("rcpt", address=B).reply(450, "4.2.1 busy")
    server.on("rcpt", address=C).reply(550, "5.1.1 no such user")

    async with open_centre(store_url, clock) as centre:
        await add_channel(centre, server)
        await centre.add_list("ops", A, B, C)
        sent = await centre.send("ops")
        adapter = EmailAdapter()
        centre.adapters["email"] = adapter
        await centre.deliver()
        await adapter.close()
        found = await centre.get(sent)
        assert found.status is Status.RETRYING
        assert {target.address: target.status.value for target in found.targets} == {
            A: "delivered",
            B: "due",
            C: "failed",
        }

    # The node is gone with all it knew; what it did stands in the store.
    later.withdraw()
    clock.advance(120)
    async with open_centre(store_url, clock) as centre:
        adapter = EmailAdapter()
        centre.adapters["email"] = adapter
        await centre.deliver()
        await adapter.close()
        found = await centre.get(sent)
        assert found.status is Status.PARKED
        assert found.last_error == f"{C}: 550 5.1.1 no such user"
        assert [mail.recipients for mail in server.mails] == [(A,), (B,)]
        assert len({mail.message_id for mail in server.mails}) == 1
        # An operator's Retry goes to the refused one alone.
        server.behave()
        assert await centre.retry(sent)
        adapter = EmailAdapter()
        centre.adapters["email"] = adapter
        await centre.deliver()
        await adapter.close()
        assert (await centre.get(sent)).status is Status.DELIVERED
        assert [mail.recipients for mail in server.mails] == [(A,), (B,), (C,)]


@pytest.mark.fault(42)
async def test_an_answer_nine_minutes_after_the_dot_is_delivered_once_under_a_lease_that_is_renewed(
    centre: Centre, clock: ManualClock
) -> None:
    async with MailServer(clock=clock) as server:
        await add_channel(centre, server)
        await centre.add_list("ops", A)
        sent = await centre.send("ops")
        server.on("dot").delay(540)
        adapter = EmailAdapter(clock=clock)
        centre.adapters["email"] = adapter
        clock.advance(1)
        waiting, other = centre.dispatcher("node-1"), centre.dispatcher("node-2")
        async with waiting.running():
            await waiting.sweep()
            await server.saw("dot")
            for _ in range(18):
                await clock.wait_sleepers(2)  # the renewal and the server's delay
                clock.advance(30)
                # The lease of 90 s would have run out six times over, and then the other node would send a second one.
                await waiting.renew()
                await other.sweep()
                await other.idle()
            await waiting.idle()
        assert (await centre.get(sent)).status is Status.DELIVERED
        assert (server.mail_count, server.seen["mail"]) == (1, 1)
        assert len(await centre.attempts(sent)) == 1
        await adapter.close()


@pytest.mark.fault(41)
async def test_dripping_server_ends_at_the_deadline_and_delays_no_other(centre: Centre, server: MailServer) -> None:
    async with MailServer() as slow:
        slow.on("connect").drip(1.0)
        await add_channel(centre, server)
        await add_channel(centre, slow, "slow", default=False)
        await centre.add_list("ops", A)
        await centre.add_list("far", B, channel_name="slow")
        held = await centre.send_many(8, "far")
        good = await centre.send_many(8, "ops")
        adapter = EmailAdapter(deadline_s=6)
        centre.adapters["email"] = adapter
        dispatcher = centre.dispatcher()
        centre.clock.advance(1)  # type: ignore[attr-defined]
        async with dispatcher.running():
            sweeping = asyncio.create_task(dispatcher.sweep())
            # All of the others arrive while the slow ones still wait.
            await server.received(8)
            assert {(await centre.get(one)).held_by for one in held} == {None}
            await sweeping
            await dispatcher.idle()
        for one in held:
            row = await centre.get(one)
            assert (row.status, row.retry_count, row.held_by) == (Status.PENDING, 0, "channel:slow")
        for one in good:
            assert (await centre.get(one)).status is Status.DELIVERED
        await adapter.close()


@pytest.mark.req("ADP-04", "ADP-05")
async def test_targets_of_a_mail_are_read_when_it_is_sent(centre: Centre, server: MailServer) -> None:
    await add_channel(centre, server)
    await centre.add_list("ops", A, B)
    sent = await centre.send("ops")
    seen = await centre.store.read(lists.get_list, "ops")
    assert seen is not None
    assert await centre.store.write(lists.change_list, replace(seen, targets=(B, C)), centre.clock.now())
    adapter = EmailAdapter()
    centre.adapters["email"] = adapter
    await centre.deliver()
    await adapter.close()
    [mail] = server.mails
    assert sorted(mail.recipients) == [B, C]
    assert (await centre.get(sent)).status is Status.DELIVERED
