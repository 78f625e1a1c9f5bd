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


async def prove(centre: Centre, notification_id: str) -> None:
    """The node starts again and finds the trace of its crash."""
    _, token, _ = await centre.claim_of(notification_id)
    error = "the process crashed: Segmentation fault"
    await centre.store.write(claims.mark_crashed, notification_id, token, error, now=centre.store.now())


@pytest.mark.req("DEC-07")
async def test_row_orphaned_once_is_claimed_with_the_others(mailing: Centre, clock: ManualClock) -> None:
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
async def test_rows_orphaned_twice_are_attempted_alone_one_at_a_time(mailing: Centre, clock: ManualClock) -> None:
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
async def test_only_a_proven_crash_in_a_lone_attempt_parks(mailing: Centre, clock: ManualClock) -> None:
    sent = await mailing.send_many(3)
    await crash(mailing, clock, times=2)
    crasher = await crash_alone(mailing, clock)
    await prove(mailing, crasher)
    await mailing.deliver()
    for i in sent:
        n = await mailing.get(i)
        assert n.status is (Status.PARKED if i == crasher else Status.DELIVERED)
    n = await mailing.get(crasher)
    assert "delivery crashed the node" in str(n.last_error)
    assert crasher not in mailing.adapter.sent()
    assert (await mailing.story(crasher))[-2:] == ["notify_deliver attempted", "notify_deliver parked"]
    assert [a.outcome for a in await mailing.attempts(crasher)] == [
        "abandoned",
        "abandoned",
        "crashed",
        "permanent_failure",
    ]


@pytest.mark.req("DEC-07")
async def test_the_trace_of_a_crash_counts_for_its_own_attempt_only(mailing: Centre, clock: ManualClock) -> None:
    """A node that was away for long finds the trace of an earlier attempt; a later one is in progress elsewhere."""
    sent = await mailing.send()
    await crash(mailing, clock, times=2)
    await crash_alone(mailing, clock)
    _, earlier, _ = await mailing.claim_of(sent)
    clock.advance(60)
    [running] = await mailing.store.write(claims.claim_lone, "alive", lease_s=LEASE_S, now=mailing.store.now())
    before = await mailing.attempts(sent)
    claim = await mailing.rows("select claim_owner, claim_token, lease_until from notifications")
    assert (await mailing.claim_of(sent))[1] > earlier
    for token, is_marked in ((earlier - 1, False), (earlier, True)):
        await mailing.store.write(claims.mark_crashed, sent, token, "Segmentation fault", now=mailing.store.now())
        now = await mailing.rows("select claim_owner, claim_token, lease_until from notifications")
        assert now == claim, "the attempt in progress keeps its lease"
        outcomes = [a.outcome for a in await mailing.attempts(sent)]
        assert outcomes == ["abandoned", "abandoned", "crashed" if is_marked else before[2].outcome, None]
    assert running.notification.notification_id == sent


@pytest.mark.req("DEC-07")
@pytest.mark.fault(22)
async def test_kills_from_outside_never_park_a_notification(mailing: Centre, clock: ManualClock) -> None:
    """Two kills make it a suspect; each further kill hits its lone attempt, and the next one waits a little longer."""
    sent = await mailing.send()
    await crash(mailing, clock, times=2)
    for number in range(4):
        await crash_alone(mailing, clock)
        other = await mailing.send()
        clock.advance(10 * 2**number - 2)
        await mailing.deliver()
        assert mailing.adapter.sent() == [other], "it waits, and the others are served"
        mailing.adapter.envelopes.clear()
        clock.advance(1)
    await mailing.deliver()
    assert mailing.adapter.sent() == [sent]
    assert (await mailing.get(sent)).status is Status.DELIVERED
    assert [a.outcome for a in await mailing.attempts(sent)] == ["abandoned"] * 6 + ["delivered"]


@pytest.mark.req("DEC-07")
async def test_the_late_result_of_an_abandoned_attempt_is_recorded_on_it(mailing: Centre, clock: ManualClock) -> None:
    """A node pauses past its lease; another takes over and closes the attempt; then the first one goes on."""
    hanging = Hanging(TransientFailure("451"))
    mailing.adapter.answer("ops", hanging)
    sent = await mailing.send()
    paused = mailing.dispatcher("paused", clock=ManualClock(clock.now()))
    async with paused.running():
        await paused.sweep()
        await mailing.adapter.called(1)
        clock.advance(LEASE_S + 1)
        await mailing.deliver()
        first, second = await mailing.attempts(sent)
        assert (first.node_id, first.outcome, first.finished_at) == ("paused", "abandoned", second.started_at)
        assert "stopped responding" in str(first.error)
        assert (second.node_id, second.outcome) == ("node-1", "delivered")
        hanging.let_go()
        await paused.idle()
    first, _ = await mailing.attempts(sent)
    assert (first.outcome, first.error) == ("transient_failure", "451")
    assert "notify_deliver skipped" in await mailing.story(sent)
    assert (await mailing.get(sent)).status is Status.DELIVERED


@pytest.mark.req("DEC-07")
async def test_completed_attempt_clears_the_suspicion(mailing: Centre, clock: ManualClock) -> None:
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
    await prove(mailing, await crash_alone(mailing, clock))
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
from pathlib import Path
from fieldpost.central.dispatch.crash_log import CrashLog
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
            os.kill(os.getpid(), int(sys.argv[3]))
        with open(sys.argv[2], "a") as file:
            file.write(envelope.notification_id + "\\n")
        return Delivered()

async def main():
    store = open_store(sys.argv[1])
    await store.write(claims.void_all, now=store.now())
    crashes = CrashLog(Path(sys.argv[2]).with_name("lone-attempt"))
    node = f"node-{os.getpid()}"
    dispatcher = Dispatcher(store, {"email": Adapter()}, node, SystemClock(), random.Random(), crash_log=crashes)
    async with dispatcher.running():
        for _ in range(3):
            await dispatcher.sweep()
            await dispatcher.idle()
    await store.close()

asyncio.run(main())
"""


@pytest.mark.req("DEC-07")
@pytest.mark.fault(62)
@pytest.mark.parametrize("end", [signal.SIGSEGV, signal.SIGABRT], ids=lambda end: end.name)
async def test_notification_that_crashes_its_process_parks_and_affects_no_other(
    sqlite_url: str, tmp_path: Path, end: signal.Signals
) -> None:
    """Real processes: each start of the node crashes on the same notification until it parks."""
    deadly, others = await fill_with_a_deadly_one(sqlite_url)
    ends = []
    while not ends or ends[-1] == -end:
        ends.append(await run_node(sqlite_url, tmp_path, end))
        assert len(ends) < 10
    assert ends == [-end] * 3 + [0], "twice among others, once alone, and then no more"
    async with open_centre(sqlite_url) as centre:
        n = await centre.get(deadly)
        assert n.status is Status.PARKED
        assert "crashed the node" in str(n.last_error)
        outcomes = [a.outcome for a in await centre.attempts(deadly)]
        assert outcomes == ["abandoned", "abandoned", "crashed", "permanent_failure"]
        assert {(await centre.get(i)).status for i in others} == {Status.DELIVERED}
    assert set((tmp_path / "sent").read_text().split()) == set(others)


@pytest.mark.req("DEC-07")
@pytest.mark.fault(22)
async def test_notification_whose_process_is_killed_each_time_does_not_park_and_affects_no_other(
    sqlite_url: str, tmp_path: Path
) -> None:
    """A kill leaves no trace of a crash, like one from outside or a power cut."""
    deadly, others = await fill_with_a_deadly_one(sqlite_url)
    ends = [await run_node(sqlite_url, tmp_path, signal.SIGKILL) for _ in range(4)]
    assert ends == [-signal.SIGKILL] * 3 + [0], "after the kill in its lone attempt it waits, and the others are served"
    async with open_centre(sqlite_url) as centre:
        assert (await centre.get(deadly)).status is Status.PENDING
        assert {(await centre.get(i)).status for i in others} == {Status.DELIVERED}


async def fill_with_a_deadly_one(url: str) -> tuple[str, list[str]]:
    async with open_centre(url) as centre:
        await centre.add_channel()
        await centre.add_list()
        await centre.add_list("deadly")
        return await centre.send("deadly"), await centre.send_many(4)


async def run_node(url: str, folder: Path, end: signal.Signals) -> int:
    """The exit code of a node whose process ends by this signal when it attempts the deadly notification."""
    command = [sys.executable, "-c", NODE, url, str(folder / "sent"), str(int(end))]
    environment = dict(os.environ) | {"PYTHONFAULTHANDLER": ""}
    node = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL, env=environment)
    return await node.wait()
