"""A node that stops: it claims nothing more, finishes what it can within the grace time and gives back the rest."""

import asyncio

import pytest

from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.outcome import Outcome
from fieldpost.core.notification import Status
from fieldpost.testing import ManualClock
from support.centre import DEADLINE_S, Centre, Hanging


@pytest.mark.fault(59)
@pytest.mark.req("DSP-12", "ADP-10")
async def test_stopping_node_releases_unfinished_rows(mailing: Centre, clock: ManualClock) -> None:
    hanging = Hanging()
    mailing.adapter.answer("ops", hanging)
    sent = await mailing.send()
    dispatcher = mailing.dispatcher(grace_s=0.05)
    running = asyncio.create_task(dispatcher.run())
    await mailing.adapter.called(1)
    dispatcher.stop()
    async with asyncio.timeout(DEADLINE_S):
        await running
    assert hanging.sent == []
    n = await mailing.get(sent)
    assert (n.status, n.retry_count) == (Status.PENDING, 0)
    assert await mailing.claim_of(sent) == (None, 1, 0), "the lease is given back"
    [attempt] = await mailing.attempts(sent)
    assert (attempt.outcome, attempt.error) == ("released", "the node stopped")
    await mailing.deliver(node_id="next")
    assert (await mailing.get(sent)).status is Status.DELIVERED


@pytest.mark.fault(59)
@pytest.mark.parametrize("park_uncertain", [False, True])
async def test_an_attempt_past_its_gate_when_the_node_stops_is_uncertain(
    mailing: Centre, clock: ManualClock, park_uncertain: bool
) -> None:
    """It may have been sent, so it is not given back as if nothing had happened."""
    await mailing.add_list("doors", park_uncertain=park_uncertain)

    async def never_answered(envelope: Envelope) -> Outcome:
        envelope.gate()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    mailing.adapter.answer("doors", never_answered)
    sent = await mailing.send("doors")
    dispatcher = mailing.dispatcher(grace_s=0.05)
    running = asyncio.create_task(dispatcher.run())
    await mailing.adapter.called(1)
    dispatcher.stop()
    async with asyncio.timeout(DEADLINE_S):
        await running
    [attempt] = await mailing.attempts(sent)
    assert (attempt.outcome, attempt.error) == ("uncertain", "the node stopped before an answer came")
    n = await mailing.get(sent)
    assert (n.status, n.retry_count) == ((Status.PARKED, 0) if park_uncertain else (Status.RETRYING, 1))


@pytest.mark.fault(59)
async def test_stopping_node_finishes_attempts_within_the_grace_time_and_claims_nothing_more(
    mailing: Centre,
) -> None:
    hanging = Hanging()
    mailing.adapter.always["ops"] = hanging
    first = await mailing.send()
    dispatcher = mailing.dispatcher(grace_s=DEADLINE_S)
    running = asyncio.create_task(dispatcher.run())
    await mailing.adapter.called(1)
    dispatcher.stop()
    second = await mailing.send()
    hanging.let_go()
    async with asyncio.timeout(DEADLINE_S):
        await running
    assert (await mailing.get(first)).status is Status.DELIVERED
    assert (await mailing.get(second)).status is Status.PENDING
    assert mailing.adapter.sent() == [first]
    assert await mailing.attempts(second) == []


@pytest.mark.fault(59)
async def test_a_node_stops_even_while_all_its_slots_are_taken(mailing: Centre) -> None:
    mailing.adapter.always["ops"] = Hanging()
    await mailing.send_many(5)
    dispatcher = mailing.dispatcher(slots=2, grace_s=0.05)
    running = asyncio.create_task(dispatcher.run())
    await mailing.adapter.called(2)
    dispatcher.stop()
    async with asyncio.timeout(DEADLINE_S):
        await running
    assert mailing.adapter.count == 2


@pytest.mark.fault(59)
@pytest.mark.req("DEC-07")
async def test_a_node_stops_even_while_a_suspect_is_attempted(mailing: Centre, clock: ManualClock) -> None:
    sent = await mailing.send()
    for owner in ("dead-1", "dead-2"):
        await mailing.claim(owner, limit=1)
        clock.advance(90)
    mailing.adapter.always["ops"] = Hanging()
    dispatcher = mailing.dispatcher(grace_s=0.05)
    running = asyncio.create_task(dispatcher.run())
    await mailing.adapter.called(1)
    dispatcher.stop()
    async with asyncio.timeout(DEADLINE_S):
        await running
    assert await mailing.claim_of(sent) == (None, 3, 2), "given back, and as suspect as before"
    mailing.adapter.always.clear()
    await mailing.deliver(node_id="next")
    assert (await mailing.get(sent)).status is Status.DELIVERED


@pytest.mark.fault(59)
async def test_cancelled_node_releases_its_claims_too(mailing: Centre) -> None:
    mailing.adapter.always["ops"] = Hanging()
    sent = await mailing.send_many(3)
    running = asyncio.create_task(mailing.dispatcher(grace_s=0.05).run())
    await mailing.adapter.called(3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    for i in sent:
        assert await mailing.claim_of(i) == (None, 1, 0)
        assert [a.outcome for a in await mailing.attempts(i)] == ["released"]
