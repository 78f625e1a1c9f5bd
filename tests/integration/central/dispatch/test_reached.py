"""Targets reached in the middle of an attempt are stored at once: a node that dies then causes no second copies."""

import asyncio

import pytest

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.core.delivery.adapter import ClaimLost, Envelope
from fieldpost.core.delivery.outcome import Delivered, Outcome, PermanentFailure, TransientFailure
from fieldpost.core.notification import Status, Target, TargetStatus
from fieldpost.testing import MailServer, ManualClock
from support.centre import Centre, open_centre
from support.pg_proxy import pg_proxy

NAMES = tuple(f"{letter}@example.org" for letter in "abcd")
DUE, REACHED, FAILED = TargetStatus.DUE, TargetStatus.DELIVERED, TargetStatus.FAILED
FIRST_TWO = tuple(Target(name, REACHED) for name in NAMES[:2])


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
        await envelope.record_reached(FIRST_TWO)
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
async def test_reached_targets_stay_recorded_after_any_end_of_the_attempt(
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


@pytest.mark.fault(22)
async def test_a_node_that_dies_after_the_last_target_leaves_nothing_to_send(
    mailing: Centre, clock: ManualClock
) -> None:
    await mailing.add_list("crew", *NAMES[:2])
    partly = Partly(Delivered())
    mailing.adapter.answer("crew", partly)
    sent = await mailing.send("crew")
    one, other = mailing.dispatcher("one"), mailing.dispatcher("other", clock=clock)
    async with other.running(), one.running():
        await one.sweep()
        await partly.recorded.wait()
        await mailing.execute("update notifications set lease_until = created_at where claim_owner is not null")
        await mailing.deliver(other)
        n = await mailing.get(sent)
        assert (n.status, n.last_error) == (Status.DELIVERED, None)
        partly.go_on.set()
        await one.idle()
    assert len(mailing.adapter.envelopes) == 1


async def test_stopped_node_keeps_the_reached_targets(mailing: Centre) -> None:
    await mailing.add_list("crew", *NAMES)
    partly = Partly(Delivered())
    mailing.adapter.answer("crew", partly)
    sent = await mailing.send("crew")
    dispatcher = mailing.dispatcher(grace_s=0.01)
    async with dispatcher.running():
        await dispatcher.sweep()
        await partly.recorded.wait()
    assert await statuses(mailing, sent) == [REACHED, REACHED, DUE, DUE]


async def test_attempt_that_lost_its_claim_records_nothing_and_stops(mailing: Centre) -> None:
    await mailing.add_list("crew", *NAMES)
    lost = []

    async def late(envelope: Envelope) -> Outcome:
        envelope.gate()
        await mailing.execute("update notifications set claim_token = claim_token + 1")
        try:
            await envelope.record_reached(FIRST_TWO)
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


@pytest.mark.fault(29)
@pytest.mark.parametrize("cut", [1, 1000], ids=["one answer is lost", "none comes for a while"])
async def test_reached_targets_are_recorded_once_the_database_answers(
    pg_url: str, clock: ManualClock, cut: int
) -> None:
    async with pg_proxy(pg_url) as proxy, open_centre(proxy.url, clock) as centre:
        await centre.add_channel()
        await centre.add_list("crew", *NAMES)
        partly = Partly(TransientFailure("451 later"))
        partly.go_on.set()

        async def without_database(envelope: Envelope) -> Outcome:
            proxy.commits_to_cut = cut
            return await partly(envelope)

        centre.adapter.answer("crew", without_database)
        sent = await centre.send("crew")
        dispatcher = centre.dispatcher()
        async with dispatcher.running():
            await dispatcher.sweep()
            if cut > 1:
                await clock.wait_sleepers(2)
                assert not partly.recorded.is_set()
                proxy.commits_to_cut = 0
                clock.advance(1)
            await dispatcher.idle()
        assert proxy.commits_cut >= 1
        assert (await centre.get(sent)).status is Status.RETRYING
        assert await statuses(centre, sent) == [REACHED, REACHED, DUE, DUE]


@pytest.mark.fault(24)
async def test_an_attempt_that_cannot_record_while_its_claim_lasts_stops(pg_url: str, clock: ManualClock) -> None:
    async with pg_proxy(pg_url) as proxy, open_centre(proxy.url, clock) as centre:
        await centre.add_channel()
        await centre.add_list("crew", *NAMES)
        lost = []

        async def without_database(envelope: Envelope) -> Outcome:
            envelope.gate()
            proxy.commits_to_cut = 1000
            try:
                await envelope.record_reached(FIRST_TWO)
            except ClaimLost as error:
                lost.append(str(error))
                proxy.commits_to_cut = 0
                raise
            return Delivered()

        centre.adapter.answer("crew", without_database)
        sent = await centre.send("crew")
        dispatcher = centre.dispatcher()
        async with dispatcher.running():
            await dispatcher.sweep()
            await clock.wait_sleepers(2)
            clock.advance(46)
            await dispatcher.idle()
        assert lost == ["the claim was not renewed within 45 s"]
        assert await statuses(centre, sent) == [REACHED, REACHED, DUE, DUE], "what is known is kept"
