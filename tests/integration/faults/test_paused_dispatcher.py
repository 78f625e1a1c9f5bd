"""A node that stands still past its leases and then goes on, as if nothing had happened."""

import asyncio

import pytest

from support.cluster import Cluster
from support.running_central import until


@pytest.mark.fault(23)
@pytest.mark.req("DEC-03")
async def test_late_results_of_a_paused_node_are_audited_and_change_nothing(cluster: Cluster) -> None:
    paused = await cluster.start()
    await cluster.furnish("ops")
    await cluster.watch_statuses()
    late = asyncio.Event()
    cluster.mail.on("dot").keep_mail().wait(late).times(8)
    # On the other node the mail is refused for now: a late "delivered" must not overwrite what it wrote.
    refusal = cluster.mail.on("rcpt").after(8).reply(451, "4.2.1 busy")
    async with cluster.sender(paused) as sender:
        sent = await sender.send(8, "ops")
        await cluster.until_in_flight(8, paused)
        await cluster.mail.received(8)
        await cluster.start()
        paused.pause()

        async def is_retrying() -> bool:
            rows = await cluster.query("select status from notifications")
            return {row["status"] for row in rows} == {"retrying"}

        await until(is_retrying, 20, "the other node to have tried all eight")
        late.set()
        paused.resume()
        told = await paused.until_logged("attempt.late", 8)
        refusal.withdraw()
        await cluster.settle()
        verdict = await cluster.verdict(sender)
    assert sorted(event["notification_id"] for event in told) == sorted(sent)
    assert {event["outcome"] for event in told} == {"delivered"}
    assert await cluster.steps_back() == []
    changes = await cluster.query("select was, now, count(*) from status_changes group by 1, 2 order by 1")
    assert [tuple(row) for row in changes] == [("pending", "retrying", 8), ("retrying", "delivered", 8)]
    audited = await cluster.query(
        "select correlation_id::text as id, source_node from audit where status = 'skipped'"
        " and error_message = 'late result, nothing changed: delivered'"
    )
    assert sorted(row["id"] for row in audited) == sorted(sent)
    assert {row["source_node"] for row in audited} == {paused.node_id}
    assert verdict.is_whole
    assert verdict.copies_too_many <= 8
    assert await cluster.broken_rules() == {}


@pytest.mark.fault(23)
async def test_a_node_paused_before_the_final_dot_does_not_send_it(cluster: Cluster) -> None:
    paused = await cluster.start()
    await cluster.furnish("ops")
    await cluster.watch_statuses()
    cluster.mail.on("data").wait(go_on := asyncio.Event()).times(8)
    async with cluster.sender(paused) as sender:
        sent = await sender.send(8, "ops")
        await cluster.until_in_flight(8, paused)
        await cluster.mail.saw("data", 8)
        await cluster.start()
        paused.pause()
        await cluster.mail.received(8)
        go_on.set()
        paused.resume()
        told = await paused.until_logged("attempt.abandoned", 8)
        await cluster.settle()
        verdict = await cluster.verdict(sender)
    assert sorted(event["notification_id"] for event in told) == sorted(sent)
    assert verdict.is_whole
    assert verdict.duplicates == {}
    assert await cluster.steps_back() == []
    assert await cluster.broken_rules() == {}
