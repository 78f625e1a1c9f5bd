"""A node stopped (SIGSTOP) at a random statement, also inside a transaction, while another one works beside it."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from support.cluster import Cluster
from support.ordeals import LISTS
from support.pg_proxy import PgProxy, pg_proxy
from support.running_central import INTERVAL_S, LEASE_S, RunningCentral, until
from support.verdict import Verdict

STATEMENTS_MAX = 60
"""A stop comes after at most so many statements of the node."""


class StoppingProxy(PgProxy):
    """Stops the node behind it once a statement has gone to the server: the server runs it, and nobody reads on."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._left = 0
        self._is_inside = False
        self._stop: Callable[[], None] | None = None
        self.stopped = asyncio.Event()

    def arm(self, statements: int, *, inside: bool, stop: Callable[[], None]) -> None:
        """Stop after so many statements; `inside`: at the first one after that within a transaction."""
        self._left, self._is_inside, self._stop = statements, inside, stop
        self.stopped.clear()

    def passed(self, data: bytes, is_begun: bool) -> None:
        if self._stop is None:
            return
        self._left -= 1
        if self._left <= 0 and (not self._is_inside or (is_begun and b"COMMIT" not in data)):
            self._stop()
            self._stop = None
            self.stopped.set()


@dataclass
class Stops:
    """What the stops led to."""

    verdict: Verdict
    inside: int = 0
    """How many of them left a transaction open."""
    resumed_s: list[float] = field(default_factory=list)
    """How long each row of the stopped node waited after the end of its lease until the other took it."""
    passed_over_s: float = 0.0
    """How long the first attempt of a row came after that of a later row of its list, at most. Each list is served in
    the order of arrival, so a row that is passed over was locked or claimed; a row that waits for its turn was not."""
    stalled_s: float = 0.0
    """The longest time without the start of an attempt; something was always due."""
    steps_back: int = 0


async def stopped_at_statements(cluster: Cluster, times: int, rng: random.Random) -> Stops:
    """So many stops of one of two nodes under load; every second one is meant to be inside a transaction."""
    survivor = await cluster.start()
    await cluster.furnish(*LISTS)
    await cluster.watch_statuses()
    done = asyncio.Event()
    async with pg_proxy(cluster.url, StoppingProxy) as proxy:
        victim = await cluster.start(url=proxy.url)
        inside = 0
        resumed_s: list[float] = []
        async with cluster.sender(survivor) as sender:
            sending = asyncio.create_task(sender.send_until(done, cluster.mail, *LISTS, batch=20))
            try:
                for number in range(times):
                    proxy.arm(rng.randrange(1, STATEMENTS_MAX), inside=number % 2 == 0, stop=victim.pause)
                    async with asyncio.timeout(60):
                        await proxy.stopped.wait()
                    inside += await _has_open_transaction(cluster)
                    resumed_s += await _taken_over(cluster, victim)
                    victim.resume()
            finally:
                victim.resume()
                done.set()
                await sending
            await cluster.settle(120)
            [longest] = await cluster.query(
                """
                with started as (
                    select n.delivery_key, n.created_at, a.started_at from notifications n
                    join attempts a on a.notification_id = n.notification_id and a.claim_token = 1
                ),
                later as (
                    select started_at - min(started_at) over (
                        partition by delivery_key order by created_at
                        groups between 1 following and unbounded following
                    ) as passed_over from started
                ),
                gaps as (
                    select started_at - lag(started_at) over (order by started_at) as gap from attempts
                )
                select coalesce(extract(epoch from (select max(passed_over) from later)), 0)::float8 as passed_over_s,
                    extract(epoch from (select max(gap) from gaps))::float8 as stalled_s
                """
            )
            return Stops(
                await cluster.verdict(sender),
                inside,
                resumed_s,
                max(longest["passed_over_s"], 0.0),
                longest["stalled_s"],
                len(await cluster.steps_back()),
            )


async def _has_open_transaction(cluster: Cluster) -> bool:
    """Whether a session has been idle in a transaction for longer than a node that runs ever is."""
    sql = """
        select 1 from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'
            and clock_timestamp() - state_change > interval '0.5 seconds'
    """
    for _ in range(12):
        if await cluster.query(sql):
            return True
        await asyncio.sleep(0.1)
    return False


async def _taken_over(cluster: Cluster, victim: RunningCentral) -> list[float]:
    """Wait until the stopped node has no row any more; how long each of them waited after its lease."""
    held = {row["id"]: row for row in await cluster.in_flight(victim)}

    async def is_free() -> bool:
        return not await cluster.query("select 1 from notifications where claim_owner = $1 limit 1", victim.node_id)

    await until(is_free, LEASE_S + INTERVAL_S + 30, "the rows of the stopped node to be taken over")
    # The locks of its open transaction end with the lease, too.
    [now] = await cluster.query("select clock_timestamp() as now")
    again = await cluster.query(
        """
        select notification_id::text as id, min(started_at) as started_at from attempts
        where notification_id = any($1::uuid[]) and node_id <> $2 group by notification_id
        """,
        list(held),
        victim.node_id,
    )
    assert {row["id"] for row in again} == set(held), "each of them was taken over"
    assert now["now"] > min((row["lease_until"] for row in held.values()), default=now["now"] - timedelta(seconds=1))
    return [(row["started_at"] - held[row["id"]]["lease_until"]).total_seconds() for row in again]


SLACK_S = 15.0
"""What a loaded machine may add; rows that stay locked would wait for as long as the node is stopped."""


def check(run: Stops, times: int) -> None:
    """Taken over within lease and sweep every time; no row waits longer; no status goes backward."""
    assert run.verdict.is_whole
    assert run.inside >= times // 4, "many of the stops left a transaction open"
    assert run.resumed_s or times < 10, "the stopped node had rows"
    assert max(run.resumed_s, default=0) <= INTERVAL_S + SLACK_S
    assert run.passed_over_s <= LEASE_S + INTERVAL_S + SLACK_S
    assert run.stalled_s <= LEASE_S + INTERVAL_S + SLACK_S
    assert run.steps_back == 0
