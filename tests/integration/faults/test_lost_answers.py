"""The connection to the database is cut between a COMMIT and its answer, wherever that happens to be."""

import asyncio

import pytest

from support.cluster import Cluster
from support.ordeals import LISTS
from support.pg_proxy import pg_proxy
from support.running_central import until
from support.verdict import broken_rules

CUTS = 12


@pytest.mark.fault(29)
@pytest.mark.req("DEC-03")
async def test_a_commit_whose_answer_was_lost_has_no_second_effect(cluster: Cluster) -> None:
    async with pg_proxy(cluster.url) as proxy:
        node = await cluster.start(url=proxy.url)
        await cluster.furnish(*LISTS)
        stop = asyncio.Event()
        async with cluster.sender() as sender:
            sending = asyncio.create_task(sender.send_until(stop, *LISTS))
            for cut in range(CUTS):
                # Under load the next COMMIT is one of ingest, of a claim, or of the ends of attempts.
                before = cluster.mail.mail_count
                await cluster.mail.until(lambda before=before: cluster.mail.mail_count > before, what="a delivery")
                proxy.commits_to_cut += 1
                await until(lambda cut=cut: proxy.commits_cut > cut, 20, "a COMMIT to be cut")
            stop.set()
            await sending
            await cluster.settle()
            verdict = await cluster.verdict(sender)
        assert node.is_running
    assert verdict.is_whole
    assert verdict.duplicates == {}
    assert await broken_rules(cluster.url) == {}
    again = await cluster.query("select 1 from notifications where retry_count > 0 or status <> 'delivered'")
    assert again == [], "an answer lost between us and the database is no failure of the mail"
