"""Targets reached in the middle of an attempt are stored at once: a node that dies then causes no second copies."""

import asyncio

import pytest

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.outcome import Delivered, Outcome, PermanentFailure, TransientFailure
from fieldpost.core.notification import Status, TargetStatus
from fieldpost.testing import MailServer, ManualClock
from support.centre import Centre

NAMES = tuple(f"{letter}@example.org" for letter in "abcd")
DUE, REACHED, FAILED = TargetStatus.DUE, TargetStatus.DELIVERED, TargetStatus.FAILED


async def statuses(centre: Centre, sent: str) -> list[TargetStatus]:
    return [target.status for target in (await centre.get(sent)).targets]


class Partly:
    """Reaches two targets, records them and goes on when told."""

    def __init__(self, outcome: Outcome | BaseException) -> None:
        self.recorded = asyncio.Event()
        self.go_on = asyncio.Event()
        self._outcome = outcome

    async def __call__(self, envelope: Envelope) -> Outcome:
        envelope.gate()
        await envelope.record_reached(NAMES[:2])
        self.recorded.set()
        await self.go_on.wait()
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome


@pytest.mark.fault(22)
async def test_a_node_that_dies_after_part_of_the_targets_sends_no_second_copy(
    mailing: Centre, clock: ManualClock
) -> None:
    await mailing.add_list("crew", *NAMES)
    partly = Partly(Delivered())
    mailing.adapter.answer("crew", partly)
    sent = await mailing.send("crew")
    one, other = mailing.dispatcher("one"), mailing.dispatcher("other", clock=clock)
    async with other.running(), one.running():
        await one.sweep()
        await partly.recorded.wait()
        assert await statuses(mailing, sent) == [REACHED, REACHED, DUE, DUE]
        # As a killed node leaves it: nothing more is written, and the lease runs out.
        await mailing.execute("update notifications set lease_until = created_at where claim_owner is not null")
        await mailing.deliver(other)
        partly.go_on.set()
        await one.idle()
    assert [envelope.targets for envelope in mailing.adapter.envelopes] == [NAMES, NAMES[2:]]
    assert (await mailing.get(sent)).status is Status.DELIVERED


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (TransientFailure("451 later"), Status.RETRYING),
        (PermanentFailure("550 no"), Status.PARKED),
        (RuntimeError("a bug"), Status.PARKED),
    ],
    ids=["transient", "permanent", "bug"],
)
async def test_no_end_of_the_attempt_takes_back_whom_it_reached(
    mailing: Centre, outcome: Outcome | BaseException, status: Status
) -> None:
    await mailing.add_list("crew", *NAMES)
    partly = Partly(outcome)
    partly.go_on.set()
    mailing.adapter.answer("crew", partly)
    sent = await mailing.send("crew")
    await mailing.deliver()
    n = await mailing.get(sent)
    assert (n.status, n.retry_count) == (status, 0), "it has made progress"
    assert await statuses(mailing, sent) == [REACHED, REACHED, *[DUE if status is Status.RETRYING else FAILED] * 2]


async def test_a_stopped_node_keeps_whom_it_reached(mailing: Centre) -> None:
    await mailing.add_list("crew", *NAMES)
    partly = Partly(Delivered())
    mailing.adapter.answer("crew", partly)
    sent = await mailing.send("crew")
    dispatcher = mailing.dispatcher(grace_s=0.01)
    async with dispatcher.running():
        await dispatcher.sweep()
        await partly.recorded.wait()
    assert await statuses(mailing, sent) == [REACHED, REACHED, DUE, DUE]


async def test_whoever_lost_the_claim_records_nothing_and_stops(mailing: Centre) -> None:
    await mailing.add_list("crew", *NAMES)
    lost = []

    async def late(envelope: Envelope) -> Outcome:
        envelope.gate()
        await mailing.execute("update notifications set claim_token = claim_token + 1")
        try:
            await envelope.record_reached(NAMES[:2])
        except Exception as error:
            lost.append(type(error).__name__)
            raise
        return Delivered()

    mailing.adapter.answer("crew", late)
    sent = await mailing.send("crew")
    dispatcher = mailing.dispatcher()
    async with dispatcher.running():
        await dispatcher.sweep()
        await mailing.adapter.called(1)
        await dispatcher.idle()
    assert lost == ["ClaimLost"]
    assert await statuses(mailing, sent) == [DUE] * 4


@pytest.mark.fault(22)
async def test_a_kill_in_the_eighth_of_ten_transactions_repeats_that_one_alone(
    mailing: Centre, clock: ManualClock
) -> None:
    names = tuple(f"user{number:03}@example.org" for number in range(1000))
    await mailing.add_list("crew", *names)
    async with MailServer() as server:
        settings = {"host": server.host, "port": server.port, "tls": "none", "from_address": "alerts@example.org"}
        await mailing.execute("delete from channels")
        await mailing.add_channel("mail", **settings)
        mailing.adapters["email"] = adapter = EmailAdapter()
        server.on("dot").after(7).keep_mail().hang().times(1)
        sent = await mailing.send("crew")
        one, other = mailing.dispatcher("one"), mailing.dispatcher("other")
        async with other.running(), one.running():
            await one.sweep()
            await server.saw("dot", 8)
            await mailing.execute("update notifications set lease_until = created_at where claim_owner is not null")
            await mailing.deliver(other)
            server.behave()
            server.connections[0].close()
        copies = [address for mail in server.mails for address in mail.recipients]
        assert (len(set(copies)), len(copies)) == (1000, 1100), "only the unanswered transaction is repeated"
        assert (await mailing.get(sent)).status is Status.DELIVERED
        await adapter.close()
