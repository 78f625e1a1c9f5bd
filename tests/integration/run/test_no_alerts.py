"""Monitoring displays: a central full of issues sends nothing that nobody submitted."""

import pytest

from support.cluster import Cluster
from support.fault_fixtures import cluster, mail
from support.running_central import until

__all__ = ["cluster", "mail"]
SAMPLES = 3


@pytest.mark.req("TOP-10", "DEC-37")
async def test_issues_are_shown_and_cause_no_notification(cluster: Cluster) -> None:
    quick = {
        "FIELDPOST_UPKEEP__SAMPLE_INTERVAL_S": "1",
        "FIELDPOST_WATCH__STUCK_AFTER_S": "0.5",
        "FIELDPOST_WATCH__SITE_LATE_AFTER_S": "0.5",
        "FIELDPOST_WATCH__SITE_OFFLINE_AFTER_S": "0.5",
    }
    node = await cluster.start(environment=quick)
    cluster.mail.on("rcpt", when=lambda event: "bad" in event.line).reply(550, "5.1.1 no such user")
    cluster.mail.on("rcpt", when=lambda event: "slow" in event.line).reply(451, "4.2.1 busy")
    await cluster.furnish("good", "bad", "slow", retry_delay_s=3600)
    await cluster.call("POST", "channels", down_channel())
    await cluster.call("POST", "lists", {"name": "held", "targets": ["held@plant.example"], "channel": "down"})
    async with cluster.sender() as sender:
        sent = await sender.send(12, "good", "bad", "slow", "held")

        async def has_issues() -> bool:
            found = {one["code"] for one in (await cluster.call("GET", "health"))["issues"]}
            return found >= {"notifications.parked", "notifications.stuck", "channel.failing"}

        await until(has_issues, 30, "central to show its issues")
        before = await samples(cluster)

        async def has_sampled() -> bool:
            return await samples(cluster) >= before + SAMPLES

        await until(has_sampled, 30, "the history to go on")
    rows = await cluster.query("select notification_id::text as id from notifications")
    assert {row["id"] for row in rows} == set(sent), "central made no notification of its own"
    assert {str(one.header("X-Fieldpost-Id")) for one in cluster.mail.mails} <= set(sent)
    assert cluster.mail.mail_count == 3, "one mail for each of the list that accepts"
    assert node.surprises() == []


def down_channel() -> dict[str, object]:
    settings = {"host": "127.0.0.1", "port": 9, "tls": "none", "from_address": "alerts@plant.example"}
    return {"name": "down", "type": "email", "settings": settings}


async def samples(cluster: Cluster) -> int:
    (row,) = await cluster.query("select count(distinct taken_at) as count from samples")
    return int(row["count"])
