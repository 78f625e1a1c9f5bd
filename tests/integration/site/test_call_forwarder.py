"""The agent's part in cached calls: when it tries, when it parks, what a claim keeps apart."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from fieldpost.core.ids import CallId, new_id
from fieldpost.core.notification import Provenance
from fieldpost.core.sites.forwarding import CarrierAnswer, Clear, Taken, TryAgain
from fieldpost.core.sites.message import CallStatus, Category, Message, MessageStatus, NewCall
from fieldpost.site.agent import Agent
from fieldpost.site.buffer import calls as stored_calls
from fieldpost.site.buffer.calls import _CLAIM, _DUE_TARGETS, _NEXT_DUE
from fieldpost.site.carriers.http import ExternalCarrier
from fieldpost.site.config.external import External
from fieldpost.site.config.folder import read_folder
from fieldpost.site.config.options import CallOptions, ForwardOptions
from fieldpost.site.forwarding.attempt import CLAIM_MARGIN_S, OVERTIME_S
from fieldpost.site.forwarding.call_forwarder import CallForwarder
from fieldpost.testing import ManualClock
from support.calls import Calls
from support.plant import INTERVAL_S, RETRIES_MAX, Plant


@pytest.mark.req("SF-06", "SF-12", "TRK-07")
def test_call_is_retried_at_a_fixed_interval_and_parked_after_its_last_retry(plant: Plant) -> None:
    call_id = plant.site.external("dead").call("POST", "/orders")
    for count in range(1, RETRIES_MAX):
        plant.clock.advance(INTERVAL_S - 1)
        assert plant.sweep() == 0
        plant.clock.advance(1)
        assert plant.sweep() == 1
        record = plant.record(call_id)
        assert (record.status, record.retry_count, record.terminal_at) == (CallStatus.RETRYING, count, None)
    assert plant.sweep_later() == 1
    record = plant.record(call_id)
    assert (record.status, record.retry_count, record.terminal_at) == (CallStatus.PARKED, RETRIES_MAX, None)
    message = plant.message(call_id)
    assert message is not None
    assert (message.status, message.last_error) == (MessageStatus.PARKED, record.last_error)
    assert plant.sweep_later() == 0, "what is parked waits for a person"


@pytest.mark.req("SF-06")
def test_a_write_parks_as_a_call_does(plant: Plant) -> None:
    (plant.folder / "plant.db").rename(plant.folder / "away.db")
    (plant.folder / "plant.db").mkdir()
    call_id = plant.site.database("plant").write("count", {"unit": "p", "n": 1})
    for _ in range(RETRIES_MAX):
        plant.sweep_later()
    assert plant.record(call_id).status is CallStatus.PARKED


def test_a_limit_of_no_retries_means_no_limit(plant: Plant) -> None:
    plant.define(f'\n[external.erp]\nurl = "{plant.server.url}"\nretry_interval_s = {INTERVAL_S}\nretries_max = 0\n')
    plant.server.on().answer(500)
    call_id = plant.site.external("erp").call("GET", "/")
    for _ in range(30):
        assert plant.sweep_later() == 1
    record = plant.record(call_id)
    assert (record.status, record.retry_count) == (CallStatus.RETRYING, 30)


@pytest.mark.req("SF-09", "SF-10")
def test_changed_settings_of_a_definition_apply_to_buffered_calls(plant: Plant) -> None:
    call_id = plant.site.external("dead").call("GET", "/")
    plant.define('\n[external.dead]\nurl = "http://127.0.0.1:9"\nretries_max = 1\n')
    plant.sweep_later()
    assert plant.record(call_id).status is CallStatus.PARKED


def test_rejection_after_the_caller_left_parks(plant: Plant) -> None:
    plant.server.on().answer(503).times(1)
    plant.server.on().answer(422, "no such part")
    call_id = plant.site.external("erp").call("POST", "/orders")
    plant.sweep_later()
    record = plant.record(call_id)
    assert (record.status, record.http_status, record.terminal_at) == (CallStatus.PARKED, 422, None)
    assert "no such part" in (record.last_error or "")


@pytest.mark.req("SF-19")
def test_rows_of_a_removed_definition_can_be_listed_retried_and_discarded(plant: Plant) -> None:
    kept = plant.site.external("dead").call("GET", "/", instance="pump-3")
    dropped = plant.site.external("dead").call("GET", "/", instance="pump-3")
    plant.define("")
    plant.sweep_later()
    for call_id in (kept, dropped):
        record = plant.record(call_id)
        assert (record.status, record.instance) == (CallStatus.PARKED, "pump-3")
        assert "no longer defines" in (record.last_error or "")
    assert [record.call_id for record in plant.site.tracking.parked()] == [kept, dropped]
    assert plant.site._buffer.discard(dropped, plant.clock.now())
    plant.define(f'\n[external.dead]\nurl = "{plant.server.url}"\n')
    assert plant.site._buffer.retry(kept, plant.clock.now())
    plant.sweep()
    assert plant.record(kept).is_delivered
    assert plant.record(dropped).status is CallStatus.DISCARDED


@pytest.mark.req("SF-21")
def test_parked_calls_count_neither_as_waiting_nor_as_the_oldest(plant: Plant) -> None:
    plant.site.external("dead").call("GET", "/")
    plant.clock.advance(1)
    plant.site.notify.to("ops").send("s", "b")
    sent_at = plant.clock.now()
    before = plant.site._buffer.depth()
    assert before.waiting == {Category.NOTIFICATION: 1, Category.EXTERNAL_CALL: 1}
    assert before.oldest_created_at == sent_at - timedelta(seconds=1)
    plant.define("")
    plant.sweep_later()
    after = plant.site._buffer.depth()
    assert (after.waiting, after.oldest_created_at) == ({Category.NOTIFICATION: 1}, sent_at)
    assert plant.site.tracking.counts() == {CallStatus.PARKED: 1}


@pytest.mark.req("TRK-09", "TRK-11")
def test_retry_by_an_operator_restarts_the_call_and_discard_ends_it(plant: Plant) -> None:
    call_id = plant.site.external("dead").call("GET", "/")
    for _ in range(RETRIES_MAX):
        plant.sweep_later()
    buffer, now = plant.site._buffer, plant.clock.now()
    assert buffer.retry(call_id, now, by="ann")
    assert not buffer.retry(call_id, now), "it is not parked any more"
    message = plant.message(call_id)
    assert message is not None
    assert (message.status, message.retry_count, message.due_at) == (MessageStatus.PENDING, 0, None)
    record = plant.record(call_id)
    assert (record.status, record.retry_count, record.last_error) == (CallStatus.RETRYING, 0, None)
    assert plant.sweep() == 1, "it is due at once"
    for _ in range(RETRIES_MAX - 1):
        plant.sweep_later()
    assert plant.record(call_id).status is CallStatus.PARKED
    assert buffer.discard(call_id, plant.clock.now(), by="ann")
    record = plant.record(call_id)
    assert (record.status, record.terminal_at) == (CallStatus.DISCARDED, plant.clock.now())
    assert record.last_error
    assert plant.message(call_id) is None
    assert not buffer.discard(call_id, now)


def issue(plant: Plant, target: str = "erp", *, claim_s: float = 0) -> Message:
    """A call as its caller buffers it, who then does no more; claimed for so long."""
    now = plant.clock.now()
    operation = NewCall(
        call_id=CallId(new_id(now, os.urandom(10))),
        category=Category.EXTERNAL_CALL,
        target=target,
        target_summary=f"{target} GET /",
        payload='{"method":"GET","path":"/"}',
        provenance=Provenance("plant-7"),
        created_at=now,
    )
    issued = plant.site._buffer.issue(operation, claimant="caller", until=now + timedelta(seconds=claim_s))
    assert issued.message is not None
    return issued.message


@pytest.mark.req("DEC-25", "DEC-03")
def test_result_after_a_lost_claim_changes_nothing_and_is_logged(plant: Plant) -> None:
    """The caller was paused past its claim, and the agent holds the call now, or has done with it."""
    buffer = plant.site._buffer
    stale = issue(plant)
    now = plant.clock.now()
    [taken] = buffer.write(
        stored_calls.claim,
        Category.EXTERNAL_CALL,
        "erp",
        now,
        claimant="agent",
        until=now + timedelta(seconds=9),
        items_max=9,
    )
    assert (taken.message_id, taken.claim_token) == (stale.message_id, stale.claim_token + 1)
    before = plant.record(stale.message_id)
    for late in (Clear(200), TryAgain(now, "later")):
        assert buffer.write(stored_calls.settle, stale, late, now) is None
        buffer.write(stored_calls.release, [stale])
        assert plant.record(stale.message_id) == before
    assert plant.kinds(stale.message_id) == ["queued", "late", "late"]
    held = buffer.write(stored_calls.settle, taken, Clear(200), now)
    assert held is not None
    assert held.is_delivered
    assert buffer.write(stored_calls.settle, taken, TryAgain(now, "again"), now) is None, "a claim settles once"
    assert plant.record(stale.message_id) == held


@pytest.mark.req("DEC-25")
def test_claim_ends_by_its_time_and_not_by_a_clock_jump(plant: Plant) -> None:
    buffer = plant.site._buffer
    issue(plant, claim_s=30)

    def take() -> list[Message]:
        now = plant.clock.now()
        until = now + timedelta(seconds=30)
        return buffer.write(
            stored_calls.claim, Category.EXTERNAL_CALL, "erp", now, claimant="agent", until=until, items_max=9
        )

    assert take() == []
    plant.clock.advance(29)
    assert take() == []
    plant.clock.advance(1)
    assert len(take()) == 1
    plant.clock.step(-7 * 86_400)
    assert len(take()) == 1, "an end further away than any claim lasts cannot have been meant"


@pytest.mark.req("DEC-04")
def test_due_time_far_ahead_after_a_clock_jump_is_due(plant: Plant) -> None:
    call_id = plant.site.external("dead").call("GET", "/")
    plant.clock.step(-30 * 86_400)
    assert plant.sweep() == 1
    assert plant.record(call_id).retry_count == 1


class Slow:
    """A carrier whose attempts for `erp` end only when told to; those for others at once."""

    category = Category.EXTERNAL_CALL

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.under_way: list[str] = []
        self.seen: list[str] = []

    async def attempt(self, message: Message, _: External | None) -> CarrierAnswer:
        self.seen.append(message.target)
        if message.target == "erp":
            self.under_way.append(message.message_id)
            await self.gate.wait()
        return Taken()

    async def close(self) -> None:
        pass


async def test_hanging_target_uses_up_only_its_own_slots(plant: Plant) -> None:
    for target in ["erp"] * 10 + ["dead"] * 3:
        issue(plant, target)
    carrier = Slow()
    folder = read_folder(plant.folder)
    forwarder = CallForwarder(
        plant.site._buffer, carrier, folder.externals, plant.clock, options=CallOptions(at_once_max=6, per_target_max=4)
    )
    stopping = asyncio.Event()
    running = asyncio.create_task(forwarder.run(stopping))
    async with asyncio.timeout(30):
        while carrier.seen.count("dead") < 3 or len(carrier.under_way) < 4:
            await asyncio.sleep(0.01)
            plant.clock.advance(0.2)
    assert len(carrier.under_way) == 4
    carrier.gate.set()
    async with asyncio.timeout(30):
        while plant.site._buffer.depth().waiting:
            await asyncio.sleep(0.01)
            plant.clock.advance(0.2)
    assert sorted(set(carrier.under_way)) == sorted(carrier.under_way), "none was tried twice"
    stopping.set()
    await running
    await forwarder.close()


async def test_stopped_agent_releases_its_claims(plant: Plant) -> None:
    message = issue(plant)
    forwarder = CallForwarder(plant.site._buffer, Slow(), read_folder(plant.folder).externals, plant.clock)
    running = asyncio.create_task(forwarder.run(asyncio.Event()))
    async with asyncio.timeout(30):
        while not forwarder._held:
            await asyncio.sleep(0.01)
            plant.clock.advance(0.2)
    assert plant.site._buffer.read(stored_calls.due_targets, Category.EXTERNAL_CALL, plant.clock.now()) == []
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await forwarder.close()
    assert plant.site._buffer.read(stored_calls.due_targets, Category.EXTERNAL_CALL, plant.clock.now()) == ["erp"]
    assert plant.record(message.message_id).status is CallStatus.PENDING


class Broken:
    """A carrier with a mistake in it."""

    category = Category.EXTERNAL_CALL

    async def attempt(self, message: Message, definition: External | None) -> CarrierAnswer:
        raise ZeroDivisionError("a mistake of ours")

    async def close(self) -> None:
        pass


async def test_bug_parks_only_the_call_that_hit_it(plant: Plant) -> None:
    broken = issue(plant)
    forwarder = CallForwarder(plant.site._buffer, Broken(), read_folder(plant.folder).externals, plant.clock)
    assert await forwarder.sweep() == 1
    await forwarder.close()
    record = plant.record(broken.message_id)
    assert record.status is CallStatus.PARKED
    assert "ZeroDivisionError" in (record.last_error or "")


@pytest.mark.req("TRK-01", "SF-17")
async def test_agent_forwards_each_category_while_the_others_are_blocked(plant: Plant) -> None:
    """Central is away, the external system hangs; the write arrives, then the call, each by its own carrier."""
    gate = plant.server.gate()
    plant.server.on().answer(503).times(1)
    plant.server.on().answer(200).wait(gate)
    plant.site.notify.to("ops").send("s", "b")
    call = plant.site.external("erp").call("GET", "/")
    (plant.folder / "plant.db").rename(plant.folder / "away.db")
    (plant.folder / "plant.db").mkdir()
    write = plant.site.database("plant").write("count", {"unit": "p", "n": 1})
    (plant.folder / "plant.db").rmdir()
    (plant.folder / "away.db").rename(plant.folder / "plant.db")
    plant.clock.advance(INTERVAL_S)
    agent = Agent(read_folder(plant.folder), plant.clock, Random(1), ForwardOptions(poll_s=0.05))
    stopping = asyncio.Event()
    running = asyncio.create_task(agent.run(stopping))
    async with asyncio.timeout(20):
        while not plant.record(write).is_delivered:
            await asyncio.sleep(0.02)
            plant.clock.advance(0.05)
        assert plant.record(call).status is CallStatus.RETRYING
        gate.open()
        while not plant.record(call).is_delivered:
            await asyncio.sleep(0.02)
            plant.clock.advance(0.05)
    assert plant.site._buffer.depth().waiting == {Category.NOTIFICATION: 1}
    stopping.set()
    async with asyncio.timeout(20):
        await running


async def test_due_call_is_tried_at_its_time_and_not_an_interval_later(plant: Plant) -> None:
    plant.server.on().answer(503).times(1)
    call_id = plant.site.external("erp").call("GET", "/")
    forwarder = CallForwarder(
        plant.site._buffer,
        ExternalCarrier(plant.clock),
        read_folder(plant.folder).externals,
        plant.clock,
        forward=ForwardOptions(interval_s=86_400, poll_s=3_600),
    )
    stopping = asyncio.Event()
    running = asyncio.create_task(forwarder.run(stopping))
    await plant.clock.wait_sleepers(1)
    plant.clock.advance(INTERVAL_S)
    async with asyncio.timeout(30):
        while not plant.record(call_id).is_delivered:
            await asyncio.sleep(0.01)
    stopping.set()
    await running
    await forwarder.close()


def test_the_claim_of_an_attempt_outlasts_the_attempt() -> None:
    assert CLAIM_MARGIN_S > OVERTIME_S


@pytest.mark.parametrize("statement", [_DUE_TARGETS, _CLAIM, _NEXT_DUE], ids=["targets", "claim", "next due"])
def test_taking_calls_scans_the_index_of_due_rows_and_never_the_table(plant: Plant, statement: str) -> None:
    names = ("category", "target", "now", "far", "claim_end", "claimant", "until", "items_max")
    plan = plant.site._buffer.read(
        lambda cursor: [
            str(row[3]) for row in cursor.execute("EXPLAIN QUERY PLAN " + statement, dict.fromkeys(names, 0))
        ]
    )
    assert any("calls_due" in step for step in plan)
    assert not any(step.startswith("SCAN calls") for step in plan)


def test_calls_are_claimed_by_due_time_not_by_age(tmp_path: Path) -> None:
    clock = ManualClock()
    calls = Calls(tmp_path / "buffer.db", clock)
    try:
        # The older a call, the later it is due.
        issued = [calls.issue() for _ in range(4)]
        for delay_s, call_id in zip((4, 3, 2, 1), issued, strict=True):
            calls.settle(call_id, TryAgain(clock.now() + timedelta(seconds=delay_s), "503 later", http_status=503))
        clock.advance(10)

        def claim(items_max: int) -> list[str]:
            now = clock.now()
            given = {"claimant": "agent", "until": now + timedelta(minutes=1), "items_max": items_max}
            taken = calls.buffer.write(stored_calls.claim, Category.EXTERNAL_CALL, "erp", now, **given)
            return [message.message_id for message in taken]

        assert [claim(1), claim(2), claim(9)] == [[issued[3]], [issued[2], issued[1]], [issued[0]]]
    finally:
        calls.close()
