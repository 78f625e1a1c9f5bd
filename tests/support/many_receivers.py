"""Two nodes, many receivers and mail: some receivers hang, some fail, some have a name server that does not answer.

Time is a manual clock. It hardly moves while the others are served, so none of them can wait for a deadline, a break or
a slot that a hanging receiver has. Then it moves break by break, and at last all receivers work again. The deadlines of
attempts and lookups, part of which are real time, are far off, so that the run may take long on a busy machine.
"""

import asyncio
import os
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from sqlalchemy import Connection, text

from fieldpost.central.adapters.webhook.adapter import WebhookAdapter
from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.dispatch.dispatcher import Dispatcher
from fieldpost.central.ingest.publish import PublishOptions
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.secrets.keyring import NONCE_BYTES, SecretOwner
from fieldpost.central.store.events import subscriptions
from fieldpost.core.events.event import Event, notification_id_of
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.signature import make_signing_secret
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.ids import new_ids
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.outbound import Outbound
from fieldpost.outbound.resolver import SystemResolver
from fieldpost.testing import ManualClock, WebhookReceiver
from support.centre import Centre, ScriptedAdapter, open_centre
from support.plans import fill

PUBLIC = "127.0.0.2"
SOURCE = "app:shop"
TOPIC = "orders.created"
BREAK_S = 300.0
PERIODS = 3
ROUNDS_MAX = 400
STEPS_OF_A_ROUND = 1 + 1 + 2 + 4
CRAWL_S = 0.1
"""How much time passes between two sweeps while the others are served."""
CRAWL_S_MAX = 40.0
"""And at most in all: less than half a lease, and far less than a break."""
FAR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdSize:
    receivers: int
    hanging: int
    failing: int
    silent: int
    events: int
    """How many events every receiver gets before the others' troubles are known."""
    backlog: int
    """How many more come while they are blocked."""
    mails: int
    timeout_s: float
    slots: int = 200
    """Of each node."""


@dataclass(slots=True)
class CrowdRun:
    """What happened."""

    ended_early: int = 0
    """Attempts to hanging receivers and to silent names that had ended when all others were served."""
    blocked: int = 0
    probes: list[Counter[str]] = field(default_factory=list)
    """Requests per troubled receiver, by period."""
    steps: dict[str, list[int]] = field(default_factory=dict)
    """Webhooks accepted by each formerly hanging receiver, sweep by sweep."""
    missing: int = 0
    second_copies: int = 0
    forged: int = 0
    by_node: Counter[str] = field(default_factory=Counter)


class NameServer:
    """Answers with the public address at once; names that begin with `silent` are answered after `works`."""

    def __init__(self) -> None:
        self.works = threading.Event()
        self.gave_up = threading.Event()

    def __call__(self, name: str) -> Sequence[str]:
        if name.startswith("silent") and not self.works.is_set():
            self.gave_up.wait(FAR_S)
            raise socket.gaierror(socket.EAI_AGAIN, "the name server did not answer")
        return [PUBLIC]


class ReceiverCrowd:
    """The two nodes and everything that they talk to."""

    def __init__(self, size: CrowdSize, clock: ManualClock, receiver: WebhookReceiver, centres: list[Centre]) -> None:
        self.size = size
        self.clock = clock
        self.receiver = receiver
        self.first = centres[0]
        self.names = NameServer()
        self.let_go = asyncio.Event()
        self.mail = ScriptedAdapter()
        self.nodes: list[Dispatcher] = []
        self.run = CrowdRun()
        self.by_name: dict[str, Subscription] = {}
        self.event_ids: list[str] = []
        self.last_sweeps: asyncio.Future[list[None]] | None = None
        """Sweeps that wait for a slot of a hanging receiver, when all others are served."""
        self.crawled_s = 0.0
        kinds = (("hangs", size.hanging), ("fails", size.failing), ("silent", size.silent))
        troubled = [f"{kind}-{number}" for kind, count in kinds for number in range(count)]
        # Spread over the keys, which are made in this order.
        every = size.receivers // len(troubled)
        self.order = [
            troubled[number // every] if number % every == 0 and number // every < len(troubled) else f"works-{number}"
            for number in range(size.receivers)
        ]

    def of(self, *kinds: str) -> list[str]:
        return [name for name in self.order if name.partition("-")[0] in kinds]

    async def prepare(self) -> None:
        """Subscriptions with sealed secrets, a list with mail, rules for the receivers."""
        now = self.clock.now()
        ids = list(new_ids(now, os.urandom(10 * len(self.order))))
        secret = make_signing_secret(bytes(range(32)))
        made = []
        for name, subscription_id in zip(self.order, ids, strict=True):
            owner = SecretOwner("subscription", subscription_id, name)
            self.receiver.add(name, secret.reveal())
            one = Subscription(
                subscription_id=subscription_id,
                name=name,
                owner="shop",
                filter=(FilterEntry(topic=TOPIC),),
                settings={"url": self.receiver.url(name, f"{name}.example"), "quick_tries": 0},
                secrets={"secret": self.first.keyring.seal(secret, owner, "secret", os.urandom(NONCE_BYTES))},
            )
            made.append(one)

        def add(conn: Connection) -> None:
            for one in made:
                subscriptions.add(conn, one, now)

        await self.first.store.write(add)
        self.by_name = {one.name: one for one in made}
        for name in self.of("hangs"):
            self.receiver.on(name).wait(self.let_go).reset()
        for name in self.of("fails"):
            self.receiver.on(name).answer(500)
        await self.first.add_channel()
        await self.first.add_list()

    async def publish(self, count: int) -> None:
        ids = list(new_ids(self.clock.now(), os.urandom(10 * count)))
        events = [Event(event_id=one, topic=TOPIC, source=SOURCE, payload='{"order": 17}') for one in ids]
        publisher = Ingest(self.first.store, self.clock, events=PublishOptions(open_topics=True)).publisher
        await publisher.publish(SOURCE, events)
        self.event_ids += ids

    def expected(self, name: str) -> set[str]:
        key = self.by_name[name].subscription_id
        return {notification_id_of(event_id, key) for event_id in self.event_ids}

    async def serve_the_others(self) -> None:
        """Until all receivers that work and all mail are served. Time hardly passes."""
        await self.publish(self.size.events)
        await self.first.store.write(fill, "ops", self.size.mails)
        async with asyncio.timeout(self.size.timeout_s):
            while not self.are_others_served():
                self.last_sweeps = asyncio.gather(*(node.sweep() for node in self.nodes))
                while not self.last_sweeps.done() and not self.are_others_served():
                    await asyncio.wait([self.last_sweeps], timeout=0.05)
                    self.crawl()
                self.crawl()
        keys = [f"subscription:{self.by_name[name].subscription_id}" for name in self.of("hangs", "silent")]

        def count(conn: Connection) -> int:
            sql = """select count(*) from attempts a join notifications n using (notification_id)
                where a.finished_at is not null and n.delivery_key = any(:keys)"""
            return int(conn.execute(text(sql), {"keys": keys}).scalar_one())

        self.run.ended_early = await self.first.store.read(count)

    def crawl(self) -> None:
        """A sweep may wait for an attempt to become long, so time passes during sweeps too."""
        if self.crawled_s < CRAWL_S_MAX:
            self.crawled_s += CRAWL_S
            self.clock.advance(CRAWL_S)

    def are_others_served(self) -> bool:
        return self.mail.count >= self.size.mails and all(
            len(self.receiver.ids(name)) >= self.size.events for name in self.of("works")
        )

    async def block(self) -> None:
        """All attempts in progress end without an answer, and more fail until every breaker is open."""
        self.let_go.set()
        self.names.gave_up.set()
        if self.last_sweeps is not None:
            await self.last_sweeps
        await self.tend(1, self.are_blocked)
        self.run.blocked = len(self.of("hangs", "fails"))
        await self.publish(self.size.backlog)
        await self.tend(1, self.are_served)

    async def probe(self) -> None:
        """One break after another."""
        troubled = self.of("hangs", "fails")
        for _ in range(PERIODS):
            before = {name: len(self.receiver.webhooks(name)) for name in troubled}
            self.clock.advance(BREAK_S)
            await self.tend(1, self.are_blocked)
            calls = Counter({name: len(self.receiver.webhooks(name)) - before[name] for name in troubled})
            self.run.probes.append(calls)

    async def recover(self) -> None:
        """All receivers and names work again; until everything is delivered."""
        self.names.works.set()
        self.receiver.behave()
        hanging = self.of("hangs")
        self.run.steps = {name: [] for name in hanging}
        self.clock.advance(BREAK_S)
        for number in range(ROUNDS_MAX):
            before = {name: len(self.receiver.ids(name)) for name in hanging}
            self.clock.advance(1 if number < 10 else BREAK_S)
            await self.sweep()
            for name in hanging:
                self.run.steps[name].append(len(self.receiver.ids(name)) - before[name])
            if number >= 10 and await self.is_all_delivered():
                break
        self.run.missing = sum(len(self.expected(name) - set(self.receiver.ids(name))) for name in self.order)
        self.run.second_copies = sum(len(self.receiver.second_copies(name)) for name in self.order)
        self.run.forged = len(self.receiver.forged)
        for node_id, attempts in await self.first.rows("select node_id, count(*) from attempts group by node_id"):
            self.run.by_node[str(node_id)] = int(str(attempts))

    async def sweep(self) -> None:
        await asyncio.gather(*(node.sweep() for node in self.nodes))
        await asyncio.gather(*(node.idle() for node in self.nodes))

    async def tend(self, step_s: float, is_done: Callable[[], Awaitable[bool]]) -> None:
        """Both nodes sweep at the same time, `step_s` apart, until it is done."""
        for _ in range(ROUNDS_MAX):
            self.clock.advance(step_s)
            await self.sweep()
            if await is_done():
                return
        raise AssertionError(f"not done after {ROUNDS_MAX} sweeps")

    async def are_blocked(self) -> bool:
        count = len(self.of("hangs", "fails"))
        now = self.clock.now()

        def look(conn: Connection) -> int:
            sql = text("select count(*) from breakers where state = 'open' and open_until > :now")
            return int(conn.execute(sql, {"now": now}).scalar_one())

        return await self.first.store.read(look) == count

    async def are_served(self) -> bool:
        return all(len(self.receiver.ids(name)) == len(self.event_ids) for name in self.of("works"))

    async def is_all_delivered(self) -> bool:
        return await self.first.rows("select distinct status from notifications") == [("delivered",)]


async def run_crowd(url: str, size: CrowdSize) -> CrowdRun:
    """The whole run on PostgreSQL, with two nodes on connections of their own."""
    clock = ManualClock()
    async with AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(WebhookReceiver(clock=clock, host=PUBLIC))
        centres = [await stack.enter_async_context(open_centre(url, clock)) for _ in range(2)]
        crowd = ReceiverCrowd(size, clock, receiver, centres)
        stack.callback(crowd.names.gave_up.set)
        webhooks = WebhookOptions(failures_max=min(size.events, 10), break_s=BREAK_S, slots=size.slots)
        for number, centre in enumerate(centres, 1):
            resolver = SystemResolver(FAR_S, look_up=crowd.names, clock=clock)
            outbound = Outbound(OutboundOptions(PUBLIC), resolve=resolver)
            stack.push_async_callback(outbound.close)
            adapter = WebhookAdapter(outbound=outbound, clock=clock, deadline_s=FAR_S)
            centre.adapters = {"email": crowd.mail, "webhook": adapter}
            crowd.nodes.append(centre.dispatcher(f"node-{number}", webhooks=webhooks, grace_s=1))
        await crowd.prepare()
        for node in crowd.nodes:
            await stack.enter_async_context(node.running())
        await crowd.serve_the_others()
        await crowd.block()
        await crowd.probe()
        await crowd.recover()
        return crowd.run


def check(run: CrowdRun, size: CrowdSize) -> None:
    assert run.ended_early == 0, "all others were served while each of the troubled attempts was in progress"
    assert run.blocked == size.hanging + size.failing
    for calls in run.probes:
        assert set(calls.values()) == {1}, "one probe per period over both nodes"
    for name, steps in run.steps.items():
        growing = [step for step in steps if step]
        # Two nodes may release more than one step within a round; each step is at most double the one before.
        assert growing[0] <= STEPS_OF_A_ROUND, f"{name}: {steps}"
        assert len(growing) > 1, f"{name}: {steps}"
    assert (run.missing, run.second_copies, run.forged) == (0, 0, 0)
    assert len(run.by_node) == 2, "both nodes deliver"
