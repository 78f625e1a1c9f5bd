"""A bulk action on thousands, whose node is killed in the middle: the other finishes it, and nothing is done twice."""

from typing import Any

import pytest

from support.cluster import TOKEN_FILE, Cluster, started_together
from support.ordeals import LISTS
from support.running_central import call, until

COUNT = 5000


@pytest.mark.timeout(600)
@pytest.mark.req("DEC-03", "DEC-15")
async def test_a_bulk_retry_survives_the_death_of_its_node(cluster: Cluster) -> None:
    survivor, victim = await started_together(cluster, 2)
    await cluster.furnish(*LISTS)
    refusing = cluster.mail.on("rcpt").reply(550, "5.7.1 relaying denied")
    async with cluster.sender() as sender:
        await sender.send(COUNT, *LISTS, batch=250)
        await cluster.settle(120)
        refusing.withdraw()
        token = (survivor.folder / TOKEN_FILE).read_text().strip()
        begun = await call(victim, token, "POST", "bulk-actions", {"verb": "retry", "reason": "mended", "filter": {}})

        async def act() -> Any:
            [found] = await cluster.query("select * from bulk_actions where action_id = $1", begun["action_id"])
            return found

        async def is_under_way() -> bool:
            return bool((await act())["done"] > 0)

        await until(is_under_way, 60, "the act to be under way", every_s=0.005)
        await victim.kill()
        after_death = await act()

        async def has_ended() -> bool:
            return (await act())["ended_at"] is not None

        await until(has_ended, 120, "the other node to finish it")
        await cluster.settle(180)
        ended = await act()
        verdict = await cluster.verdict(sender)
    assert after_death["done"] < COUNT, "it died in the middle"
    assert (ended["status"], ended["total"], ended["done"]) == ("finished", COUNT, COUNT)
    acts = await cluster.query(
        "select count(*) as entries, count(distinct correlation_id) as rows from audit"
        " where kind = 'operator_action' and correlation_id is not null"
    )
    assert [dict(row) for row in acts] == [{"entries": COUNT, "rows": COUNT}], "each once"
    assert verdict.is_whole
    assert survivor.is_running
    assert await cluster.broken_rules() == {}
