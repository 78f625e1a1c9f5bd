"""Faults that nodes live through, each as one function of how hard it is: a short form for every run of the tests, a
long one for `make chaos`.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from support.cluster import Cluster, started_together
from support.pg_proxy import pg_proxy
from support.running_central import LEASE_S, RunningCentral, until
from support.sender import BODY
from support.verdict import Verdict

SLOTS = 64
LISTS = [f"list-{number:02}" for number in range(16)]


async def two_dispatchers(cluster: Cluster, count: int) -> tuple[Verdict, dict[str, int]]:
    """Two nodes, so many rows: the verdict, and how many attempts each node made."""
    # No lease may end here by a busy machine: what is shown is that claims keep nodes apart, not what follows a lease.
    await started_together(cluster, 2, environment={"FIELDPOST_DISPATCH__LEASE_S": "60"})
    await cluster.furnish(*LISTS)
    async with cluster.sender() as sender:
        await sender.send(count, *LISTS, batch=250)
        await cluster.settle()
        attempts = await cluster.query("select node_id, count(*) from attempts group by node_id")
        return await cluster.verdict(sender), {row["node_id"]: row["count"] for row in attempts}


@dataclass(frozen=True)
class Drain:
    """What became of a backlog of which one of two nodes died half-way."""

    verdict: Verdict
    in_flight: int
    """What the dead node had in its hands: the most that may be delivered twice."""
    resumed_s: float
    """The longest that one of these waited for the other node once its lease was over."""
    finished_s: float
    """From the death to the end, less what the other node would have needed at the pace of both before."""


async def drained_with_a_death(cluster: Cluster, count: int) -> Drain:
    """Two nodes and a backlog of so many; one is killed when a third is done."""
    survivor, victim = await started_together(cluster, 2)
    await cluster.furnish(*LISTS)
    loop = asyncio.get_running_loop()
    async with cluster.sender() as sender:
        sending = asyncio.create_task(sender.send(count, *LISTS, batch=250))
        began = loop.time()
        await cluster.mail.until(lambda: cluster.mail.mail_count >= count // 3, timeout_s=300, what="a third of it")
        await victim.kill()
        died, done = loop.time(), cluster.mail.mail_count
        sender.use(survivor.url)
        orphans = {row["id"]: row["lease_until"] for row in await cluster.in_flight(victim)}
        await sending
        await cluster.settle(600)
        # One node alone, at the pace that both had together.
        expected_s = (count - done) / (done / (died - began)) * 2
        finished_s = loop.time() - died - expected_s
        again = await cluster.query(
            "select notification_id::text as id, min(started_at) as started_at from attempts"
            " where node_id = $1 and claim_token > 1 group by 1",
            survivor.node_id,
        )
        # A node that had to wait for its turn gives a claim back unsent and takes it again: the first time counts.
        taken_up = {row["id"]: row["started_at"] for row in again}
        waits = [(taken_up[i] - lease_until).total_seconds() for i, lease_until in orphans.items()]
        return Drain(await cluster.verdict(sender), len(orphans), max(waits, default=0.0), finished_s)


@dataclass(frozen=True)
class Recovery:
    """What a disturbance of the database came to."""

    verdict: Verdict
    recovered_s: float
    """From the moment when the database could be used again until something new was acked and delivered."""
    in_flight: int
    """The most that may be delivered twice: what was under way when it happened, each time it happened."""


async def lost_answers(cluster: Cluster, cuts: int) -> Verdict:
    """One node under load, and so many times the line to its database is cut between a commit and its answer."""
    async with pg_proxy(cluster.url) as proxy:
        node = await cluster.start(url=proxy.url)
        await cluster.furnish(*LISTS)
        stop = asyncio.Event()
        async with cluster.sender() as sender:
            sending = asyncio.create_task(sender.send_until(stop, cluster.mail, *LISTS))
            try:
                for cut in range(cuts):
                    # Ingest commits by its one statement, which holds bodies; a COMMIT ends a claim or attempts.
                    proxy.commit_mark = (b"COMMIT", BODY.encode())[cut % 2]
                    before = cluster.mail.mail_count
                    await cluster.mail.until(lambda before=before: cluster.mail.mail_count > before, what="a delivery")
                    proxy.commits_to_cut += 1
                    await until(lambda cut=cut: proxy.commits_cut > cut, 20, "a commit to be cut")
            finally:
                stop.set()
                await sending
            await cluster.settle()
            assert node.is_running
            return await cluster.verdict(sender)


async def disturbed(cluster: Cluster, disturb: Callable[[int], Awaitable[None]], times: int) -> Recovery:
    """Two nodes under load, and so many disturbances of their database; none of the processes may end."""
    nodes = await started_together(cluster, 2)
    pids = [node.pid for node in nodes]
    await cluster.furnish(*LISTS)
    stop = asyncio.Event()
    recovered_s = 0.0
    in_flight = 0
    async with cluster.sender() as sender:
        sending = asyncio.create_task(sender.send_until(stop, cluster.mail, *LISTS))
        try:
            for number in range(times):
                before = cluster.mail.mail_count
                await cluster.mail.until(
                    lambda before=before: cluster.mail.mail_count >= before + 60, timeout_s=30, what="deliveries"
                )
                in_flight += 2 * SLOTS
                await disturb(number)
                recovered_s = max(recovered_s, await _recovery_s(cluster, sender.acked))
        finally:
            stop.set()
            await sending
        await cluster.settle()
        assert [node.pid for node in nodes if node.is_running] == pids, "no process may end for that"
        assert sender.refused.keys() <= {"503"}, "whoever sends is put off, and told so"
        return Recovery(await cluster.verdict(sender), recovered_s, in_flight)


async def _recovery_s(cluster: Cluster, acked: set[str]) -> float:
    """How long until something is acked that was not, and something delivered that was not."""
    loop = asyncio.get_running_loop()
    began, acked_before, mails_before = loop.time(), len(acked), cluster.mail.mail_count
    await until(lambda: len(acked) > acked_before, 30, "a new ack")
    await cluster.mail.until(lambda: cluster.mail.mail_count > mails_before, timeout_s=30, what="a new delivery")
    return loop.time() - began


async def killed_again_and_again(cluster: Cluster, kills: int, rng: random.Random) -> tuple[Verdict, int]:
    """Three nodes under load; at random moments one is killed and started anew. The verdict, and the bound of copies
    too many. What parked because its node was killed during a lone attempt is retried by an operator at the end."""

    async def kill(node: RunningCentral) -> None:
        await node.kill()
        await node.start()

    return await _harassed(cluster, kill, kills, rng)


async def paused_again_and_again(cluster: Cluster, pauses: int, rng: random.Random) -> tuple[Verdict, int]:
    """Three nodes under load; at random moments one stands still, mostly for longer than its leases last."""

    async def pause(node: RunningCentral) -> None:
        node.pause()
        [now] = await cluster.query("select clock_timestamp() as now")
        await cluster.until_clock_passed(now["now"] + timedelta(seconds=rng.uniform(0.5, 2.5) * LEASE_S))
        node.resume()

    return await _harassed(cluster, pause, pauses, rng)


async def _harassed(
    cluster: Cluster, harass: Callable[[RunningCentral], Awaitable[None]], times: int, rng: random.Random
) -> tuple[Verdict, int]:
    nodes = await started_together(cluster, 3)
    await cluster.furnish(*LISTS)
    stop = asyncio.Event()
    async with cluster.sender() as sender:
        sending = asyncio.create_task(sender.send_until(stop, cluster.mail, *LISTS, batch=50))
        try:
            for _ in range(times):
                enough = cluster.mail.mail_count + rng.randrange(20, 200)
                await cluster.mail.until(
                    lambda enough=enough: cluster.mail.mail_count >= enough, timeout_s=60, what="deliveries"
                )
                await harass(rng.choice(nodes))
                sender.use(*(node.url for node in nodes))
        finally:
            stop.set()
            await sending
        await cluster.settle(180)
        await _none_parked(cluster)
        return await cluster.verdict(sender), times * SLOTS


async def _none_parked(cluster: Cluster) -> None:
    parked = await cluster.query("select last_error from notifications where status = 'parked'")
    assert parked == [], "a kill from outside is not the notification's fault"
