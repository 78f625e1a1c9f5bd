"""The database cannot be reached while a send hangs: the leases run out, and the node knows it."""

import asyncio

import pytest

from support.cluster import Cluster
from support.pg_proxy import pg_proxy


@pytest.mark.fault(24)
@pytest.mark.req("DEC-07")
async def test_an_attempt_whose_lease_was_not_renewed_is_abandoned_unsent(cluster: Cluster) -> None:
    async with pg_proxy(cluster.url) as proxy:
        cut_off = await cluster.start(url=proxy.url)
        await cluster.furnish("ops")
        cluster.mail.on("data").wait(go_on := asyncio.Event()).times(6)
        async with cluster.sender() as sender:
            sent = await sender.send(6, "ops")
            await cluster.until_in_flight(6, cut_off)
            await cluster.mail.saw("data", 6)
            await cluster.start()
            proxy.block()
            await cluster.mail.received(6)
            go_on.set()
            told = await cut_off.until_logged("attempt.abandoned", 6)
            assert sorted(event["notification_id"] for event in told) == sorted(sent)
            proxy.unblock()
            # It goes on as before once it is back: the next ones are delivered by either.
            sender.use(cut_off.url)
            await sender.send(6, "ops")
            await cluster.settle()
            verdict = await cluster.verdict(sender)
    assert verdict.is_whole
    assert verdict.duplicates == {}
    assert await cluster.broken_rules() == {}


@pytest.mark.fault(24)
@pytest.mark.req("DEC-10")
async def test_a_send_without_an_answer_is_recorded_as_uncertain_when_the_database_is_back(cluster: Cluster) -> None:
    async with pg_proxy(cluster.url) as proxy:
        node = await cluster.start(url=proxy.url)
        await cluster.furnish("ops", data_timeout_s=2.5)
        cluster.mail.on("dot").keep_mail().hang().times(4)
        async with cluster.sender() as sender:
            sent = await sender.send(4, "ops")
            flights = await cluster.until_in_flight(4, node)
            await cluster.mail.received(4)
            proxy.block()
            # Without an answer the conversation ends after its time: by then the leases are over too.
            await cluster.mail.idle()
            await cluster.until_clock_passed(max(flight["lease_until"] for flight in flights))
            proxy.unblock()
            await cluster.settle()
            verdict = await cluster.verdict(sender)
    ends = await cluster.query(
        "select notification_id::text as id, outcome, phase from attempts order by notification_id, claim_token"
    )
    first_ends = {row["id"]: (row["outcome"], row["phase"]) for row in reversed(ends)}
    assert first_ends == dict.fromkeys(sent, ("uncertain", "dot"))
    assert verdict.is_whole
    assert verdict.copies_too_many == 4, "each of them was sent once more, since nobody knew"
    assert await cluster.broken_rules() == {}
