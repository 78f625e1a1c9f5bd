"""Central nodes on one PostgreSQL store, a mail server as their way out and a site that sends: the stage of most fault
tests. Nodes are real processes (`running_central.py`); what they did is read in the database and at the mail server.
"""

import asyncio
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncpg

from fieldpost.testing import MailServer
from support.running_central import RunningCentral, call, until
from support.sender import Sender
from support.verdict import Verdict, broken_rules, deliveries_of, judge, statuses_of

SETTLE_S = 60.0
TOKEN_FILE = "api-token"


class Cluster:
    """As a context manager it leaves no process behind."""

    def __init__(self, url: str, folder: Path, mail: MailServer) -> None:
        self.url = url
        self.mail = mail
        self.nodes: list[RunningCentral] = []
        self.token = ""
        self._folder = folder

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes:
            await node.__aexit__(kind, error, trace)

    def add(self, *, url: str | None = None, **more: Any) -> RunningCentral:
        """One more node, not started yet; `url` where it reaches the store by another way."""
        node = RunningCentral(url or self.url, self._folder / f"node-{len(self.nodes) + 1}", **more)
        self.nodes.append(node)
        return node

    async def start(self, **more: Any) -> RunningCentral:
        node = self.add(**more)
        await node.start()
        return node

    async def call(self, method: str, path: str, body: object = None) -> Any:
        """What the API answers, as an administrator, by the first node that runs."""
        token = (self.nodes[0].folder / TOKEN_FILE).read_text().strip()
        return await call(next(node for node in self.nodes if node.is_running), token, method, path, body)

    async def furnish(self, *lists: str, retry_delay_s: float = 1.0, **settings: Any) -> None:
        """A channel to the mail server, these lists and a site."""
        given = {"host": self.mail.host, "port": self.mail.port, "tls": "none", "from_address": "alerts@plant.example"}
        given |= {"max_connections": 100} | settings
        channel = {"name": "mail", "type": "email", "settings": given, "is_default": True}
        channel |= {"max_retries": 50, "retry_delay_s": retry_delay_s}
        await self.call("POST", "channels", channel)
        for name in lists:
            await self.call("POST", "lists", {"name": name, "targets": [f"{name}@plant.example"]})
        self.token = (await self.call("POST", "sites", {"name": "plant-7"}))["token"]

    def sender(self, *nodes: RunningCentral) -> Sender:
        """A site that sends to these nodes, or to all."""
        return Sender(self.token, *(node.url for node in nodes or self.nodes))

    async def query(self, sql: str, *values: Any) -> list[asyncpg.Record]:
        """As a visitor of the database: none of ours is asked."""
        connection = await asyncpg.connect(self.url)
        try:
            return list(await connection.fetch(sql, *values))
        finally:
            await connection.close()

    async def in_flight(self, node: RunningCentral | None = None) -> list[asyncpg.Record]:
        """The attempts without an end on rows that are claimed, of this node or of all, with their leases."""
        return await self.query(
            """
            select n.notification_id::text as id, n.claim_token as token, n.lease_until, a.node_id
            from notifications n join attempts a using (notification_id, claim_token)
            where a.finished_at is null and n.claim_owner = a.node_id and ($1::text is null or a.node_id = $1)
            """,
            node.node_id if node else None,
        )

    async def until_in_flight(self, count: int, node: RunningCentral | None = None) -> list[asyncpg.Record]:
        async def found() -> list[asyncpg.Record] | None:
            flights = await self.in_flight(node)
            return flights if len(flights) >= count else None

        return list(await until(found, 30.0, f"{count} attempts under way"))

    async def until_clock_passed(self, moment: datetime, timeout_s: float = 30.0) -> None:
        """Wait until the database's clock is past this moment."""

        async def is_past() -> bool:
            return bool((await self.query("select clock_timestamp() > $1 as is_past", moment))[0]["is_past"])

        await until(is_past, timeout_s, f"the database's clock to pass {moment}")

    async def settle(self, timeout_s: float = SETTLE_S) -> None:
        """Wait until nothing is live any more."""

        async def is_settled() -> bool:
            live = "select 1 from notifications where status in ('pending', 'retrying') limit 1"
            return not await self.query(live)

        await until(is_settled, timeout_s, "all rows to be done", every_s=0.1)

    async def verdict(self, sender: Sender) -> Verdict:
        statuses = await statuses_of(self.url)
        return judge(sender.acked, deliveries_of(self.mail.mails), statuses, sender.sent)

    async def broken_rules(self) -> dict[str, list[str]]:
        """What must always hold once nothing is under way, and does not; nodes that met with a surprise included."""
        surprises = [f"{event['event']}: {event['exception']}" for node in self.nodes for event in node.surprises()]
        return await broken_rules(self.url) | ({"nobody expected that": surprises} if surprises else {})

    async def watch_statuses(self) -> None:
        """From now on the database notes every change of a status, whoever makes it."""
        await self.query("create table status_changes (id uuid, was text, now text, at timestamptz)")
        await self.query(
            """
            create function note_status() returns trigger language plpgsql as $$ begin
                insert into status_changes values (old.notification_id, old.status, new.status, clock_timestamp());
                return null;
            end $$
            """
        )
        await self.query(
            """
            create trigger note_status after update on notifications for each row
            when (old.status is distinct from new.status) execute function note_status()
            """
        )

    async def steps_back(self) -> list[asyncpg.Record]:
        """Changes that no rule allows without an operator: anything that leaves a terminal status."""
        return await self.query("select * from status_changes where was not in ('pending', 'retrying')")


async def started_together(cluster: Cluster, count: int, **more: Any) -> list[RunningCentral]:
    """The first alone, since it makes the first account; the others at once."""
    nodes = [cluster.add(**more) for _ in range(count)]
    await nodes[0].start()
    await asyncio.gather(*(node.start() for node in nodes[1:]))
    return nodes
