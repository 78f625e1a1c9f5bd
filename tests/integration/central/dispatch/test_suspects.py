"""Rows whose attempts ended with their node: attempted alone, and parked only after the orphan of a lone attempt."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fieldpost.central.store.notifications import breakers, claims
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.breaker import BreakerPolicy, channel_key, record
from fieldpost.core.delivery.outcome import Delivered, Evidence, Outcome, TransientFailure
from fieldpost.core.notification import Status
from fieldpost.testing import ManualClock
from support.centre import LEASE_S, Centre, Hanging, open_centre


async def crash(centre: Centre, clock: ManualClock, times: int = 1) -> None:
    """So many nodes claim all that is due and die with it."""
    for number in range(times):
        await centre.claim(f"dead-{number}")
        clock.advance(LEASE_S)


async def crash_alone(centre: Centre, clock: ManualClock) -> str:
    """A node claims one suspect and dies with it."""
    [one] = await centre.store.write(claims.claim_lone, "dead-lone", lease_s=LEASE_S, now=centre.store.now())
    clock.advance(LEASE_S)
    return one.notification.notification_id


@pytest.mark.req("DEC-07")
async def test_a_row_orphaned_once_goes_with_the_others(mailing: Centre, clock: ManualClock) -> None:
    await mailing.send_many(3)
    await crash(mailing, clock)
    hanging = Hanging()
    mailing.adapter.always["ops"] = hanging
    dispatcher = mailing.dispatcher()
    async with dispatcher.running():
        await dispatcher.sweep()
        await mailing.adapter.called(3)
        assert mailing.adapter.running == 3
        hanging.let_go()
        await dispatcher.idle()


@pytest.mark.req("DEC-07")
@pytest.mark.fault(62)
async def test_rows_orphaned_twice_are_attempted_one_at_a_time_with_nothing_beside_them(
    mailing: Centre, clock: ManualClock
) -> None:
    suspects = await mailing.send_many(3)
    await crash(mailing, clock, times=2)
    fresh = await mailing.send_many(5)
    beside: list[int] = []

    async def look(_: Envelope) -> Outcome:
        beside.append(mailing.adapter.running)
        await asyncio.sleep(0)
        beside.append(mailing.adapter.running)
        return Delivered()

    mailing.adapter.answer("ops", look, look, look)
    await mailing.deliver()
    assert sorted(mailing.adapter.sent()[:3]) == sorted(suspects)
    assert set(beside) == {1}
    for i in suspects + fresh:
        assert (await mailing.get(i)).status is Status.DELIVERED
        assert await mailing.claim_of(i) == (None, 3 if i in suspects else 1, 0)


@pytest.mark.req("DEC-07")
@pytest.mark.fault(62)
async def test_only_the_orphan_of_a_lone_attempt_parks(mailing: Centre, clock: ManualClock) -> None:
    sent = await mailing.send_many(3)
    await crash(mailing, clock, times=2)
    crasher = await crash_alone(mailing, clock)
    await mailing.deliver()
    for i in sent:
        n = await mailing.get(i)
        assert n.status is (Status.PARKED if i == crasher else Status.DELIVERED)
    n = await mailing.get(crasher)
    assert "delivery crashed the node" in str(n.last_error)
    assert crasher not in mailing.adapter.sent()
    assert (await mailing.story(crasher))[-2:] == ["notify_deliver attempted", "notify_deliver parked"]
    assert [a.outcome for a in await mailing.attempts(crasher)] == [None, None, None, "permanent_failure"]


@pytest.mark.req("DEC-07")
async def test_an_attempt_that_ends_clears_the_suspicion(mailing: Centre, clock: ManualClock) -> None:
    [sent] = await mailing.send_many(1)
    await crash(mailing, clock, times=2)
    mailing.adapter.answer("ops", TransientFailure("451"))
    await mailing.deliver()
    assert await mailing.claim_of(sent) == (None, 3, 0)
    assert (await mailing.get(sent)).status is Status.RETRYING


@pytest.mark.req("DEC-07")
async def test_an_operators_retry_of_a_crasher_is_attempted_like_any_other(mailing: Centre, clock: ManualClock) -> None:
    [sent] = await mailing.send_many(1)
    await crash(mailing, clock, times=2)
    await crash_alone(mailing, clock)
    await mailing.deliver()
    assert await mailing.retry(sent)
    await mailing.deliver()
    assert (await mailing.get(sent)).status is Status.DELIVERED
    assert not (await mailing.attempts(sent))[-1].is_lone


@pytest.mark.req("DEC-07")
async def test_a_lone_attempt_waits_until_everything_else_has_ended(mailing: Centre, clock: ManualClock) -> None:
    await mailing.add_list("slow")
    suspect = await mailing.send()
    await crash(mailing, clock, times=2)
    await mailing.execute(f"update notifications set held_by = 'x' where notification_id = '{suspect}'")
    hanging = Hanging()
    mailing.adapter.answer("slow", hanging)
    await mailing.send("slow")
    dispatcher = mailing.dispatcher(refresh_s=0.001)
    async with dispatcher.running():
        await dispatcher.sweep()
        await mailing.adapter.called(1)
        await mailing.execute("update notifications set held_by = null")
        clock.advance(1)
        sweeping = asyncio.create_task(dispatcher.sweep())
        later = await mailing.send("slow")
        done, _ = await asyncio.wait([sweeping], timeout=0.2)
        assert not done, "the sweep waits for the attempt in flight"
        assert mailing.adapter.count == 1
        hanging.let_go()
        await sweeping
        await dispatcher.idle()
    assert mailing.adapter.sent()[1] == suspect
    assert later in mailing.adapter.sent()


@pytest.mark.req("DEC-07", "DEC-22")
async def test_a_lone_attempt_has_no_probe_beside_it(mailing: Centre, clock: ManualClock) -> None:
    await mailing.add_channel("down", default=False)
    await mailing.add_list("behind", channel_name="down")
    key = channel_key("down")
    suspect = await mailing.send()
    await crash(mailing, clock, times=2)
    await mailing.store.write(
        breakers.change,
        key,
        lambda b: record(b, Evidence.FAILS, "down", BreakerPolicy(failures_max=1, break_s=0), clock.now()),
    )
    probe = await mailing.send("behind")
    await mailing.execute(f"update notifications set held_by = '{key}' where notification_id = '{probe}'")
    hanging = Hanging()
    mailing.adapter.answer("behind", hanging)
    dispatcher = mailing.dispatcher()
    async with dispatcher.running():
        clock.advance(1)
        sweeping = asyncio.create_task(dispatcher.sweep())
        await mailing.adapter.called(1)
        done, _ = await asyncio.wait([sweeping], timeout=0.2)
        assert not done
        assert mailing.adapter.sent() == [probe]
        hanging.let_go()
        await sweeping
        await dispatcher.idle()
    assert mailing.adapter.sent() == [probe, suspect]


NODE = """
import asyncio, os, random, signal, sys
from fieldpost.central.dispatch.dispatcher import Dispatcher
from fieldpost.central.store.notifications import claims
from fieldpost.central.store.engine.database_url import open_store
from fieldpost.clock import SystemClock
from fieldpost.core.delivery.outcome import Delivered

class Adapter:
    type = "email"
    deadline_s = 60.0
    async def deliver(self, envelope):
        if envelope.list_name == "deadly":
            os.kill(os.getpid(), signal.SIGKILL)
        with open(sys.argv[2], "a") as file:
            file.write(envelope.notification_id + "\\n")
        return Delivered()

async def main():
    store = open_store(sys.argv[1])
    await store.write(claims.void_all)
    dispatcher = Dispatcher(store, {"email": Adapter()}, f"node-{os.getpid()}", SystemClock(), random.Random())
    async with dispatcher.running():
        for _ in range(3):
            await dispatcher.sweep()
            await dispatcher.idle()
    await store.close()

asyncio.run(main())
"""


@pytest.mark.req("DEC-07")
@pytest.mark.fault(62)
async def test_a_notification_that_kills_its_process_parks_and_takes_nobody_with_it(
    sqlite_url: str, tmp_path: Path
) -> None:
    """Real processes: each start of the node is killed by the same notification until it parks."""
    async with open_centre(sqlite_url) as centre:
        await centre.add_channel()
        await centre.add_list()
        await centre.add_list("deadly")
        deadly = await centre.send("deadly")
        others = await centre.send_many(4)
    sent = tmp_path / "sent"
    command = [sys.executable, "-c", NODE, sqlite_url, str(sent)]
    ends = []
    while not ends or ends[-1] == -signal.SIGKILL:
        node = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL, env=dict(os.environ))
        ends.append(await node.wait())
        assert len(ends) < 10
    assert ends == [-signal.SIGKILL] * 3 + [0], "twice among others, once alone, and then no more"
    async with open_centre(sqlite_url) as centre:
        n = await centre.get(deadly)
        assert n.status is Status.PARKED
        assert "crashed the node" in str(n.last_error)
        assert {(await centre.get(i)).status for i in others} == {Status.DELIVERED}
    assert set(sent.read_text().split()) == set(others)
