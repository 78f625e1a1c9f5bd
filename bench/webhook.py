"""`webhook`: drain signed POSTs to a local sink, 200 at once; again with 5 % of the receivers hanging.

Reference: a bare aiohttp loop with 200 requests at once that signs and posts the same bodies and writes nothing. Ours:
one `Dispatcher` on PostgreSQL with 200 slots for subscriptions, with claims, attempts, exchanges, audit entries and
results, through the guarded client. The sink answers on ten loopback addresses in this process, so it costs both the
same. The second figure compares the rate of the healthy receivers while 5 % of all receivers hang with their rate
alone.
"""

import asyncio
import json
import os
import random
from datetime import UTC, datetime
from typing import Any

import aiohttp

from bench.harness import Report, Stopwatch, compare
from bench.stores import Stores
from fieldpost.central.adapters.webhook.adapter import WebhookAdapter
from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.dispatch.dispatcher import Dispatcher
from fieldpost.central.dispatch.options import DispatchOptions
from fieldpost.central.ingest.publish import PublishOptions
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.secrets.keyring import NONCE_BYTES, Keyring, SecretKey, SecretOwner
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import subscriptions
from fieldpost.clock import SystemClock
from fieldpost.core.events.event import Event
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.signature import make_signing_secret, signed_headers
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.ids import new_ids
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.outbound import Outbound

RECEIVERS = 100
HANGING = RECEIVERS // 20
HOSTS = [f"127.0.1.{number}" for number in range(1, 11)]
AT_ONCE = 200
SECRET = make_signing_secret(bytes(range(32)))
KEYRING = Keyring([SecretKey.of(bytes(32))])
BODY = json.dumps({"type": "orders.created", "data": {"text": "x" * 500}}).encode()
OPTIONS = DispatchOptions(batch_size=128, grace_s=0.1)


class Sink(asyncio.Protocol):
    """Answers every request with 204, except those to /hang."""

    count = 0

    def __init__(self) -> None:
        self._data = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end].lower()
            size = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
            if len(self._data) < end + 4 + size:
                return
            self._data = self._data[end + 4 + size :]
            if not head.startswith(b"post /hang"):
                Sink.count += 1
                self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")


async def run(report: Report, stores: Stores, quick: bool) -> None:
    rows = 2_000 if quick else 20_000
    loop = asyncio.get_running_loop()
    first = await loop.create_server(Sink, HOSTS[0], 0)
    port = first.sockets[0].getsockname()[1]
    servers = [first, *[await loop.create_server(Sink, host, port) for host in HOSTS[1:]]]
    try:
        async with stores.open("postgresql") as store:
            await subscribe(store, port)

            async def ours() -> float:
                await publish(store, rows // RECEIVERS, "healthy")
                return await drain(store, rows)

            async def reference() -> float:
                return await post_bare(port, rows)

            notes = f"{rows:,} POSTs, {AT_ONCE} at once, {RECEIVERS} receivers on {len(HOSTS)} addresses"
            report.add(await compare("webhook", ours, reference, 5, "POSTs/s", notes))

            async def beside_hanging() -> float:
                await publish(store, rows // RECEIVERS, "all")
                return await drain(store, rows)

            notes = f"healthy receivers beside {HANGING} that hang; reference: without them"
            report.add(await compare("webhook hanging", beside_hanging, ours, 3 if quick else 5, "POSTs/s", notes))
    finally:
        for server in servers:
            server.close()


async def subscribe(store: Store, port: int) -> None:
    now = datetime.now(UTC)
    ids = new_ids(now, os.urandom(10 * (RECEIVERS + HANGING)))
    for number, subscription_id in enumerate(ids):
        is_healthy = number < RECEIVERS
        path = f"r{number}" if is_healthy else "hang"
        name = f"receiver-{number}"
        owner = SecretOwner("subscription", subscription_id, name)
        topics = ("healthy", "all") if is_healthy else ("all",)
        one = Subscription(
            subscription_id=subscription_id,
            name=name,
            owner="bench",
            filter=tuple(FilterEntry(topic=topic) for topic in topics),
            settings={"url": f"http://{HOSTS[number % len(HOSTS)]}:{port}/{path}"},
            secrets={"secret": KEYRING.seal(SECRET, owner, "secret", os.urandom(NONCE_BYTES))},
        )
        await store.write(subscriptions.add, one, now)


async def publish(store: Store, count: int, topic: str) -> None:
    publisher = Ingest(store, SystemClock(), events=PublishOptions(open_topics=True)).publisher
    ids = new_ids(datetime.now(UTC), os.urandom(10 * count))
    payload = json.dumps({"text": "x" * 500})
    events = [Event(event_id=event_id, topic=topic, source="app:bench", payload=payload) for event_id in ids]
    await publisher.publish("app:bench", events)


async def drain(store: Store, rows: int) -> float:
    outbound = Outbound(OutboundOptions(allow="127.0.1.0/24"))
    adapter = WebhookAdapter(outbound=outbound)
    webhooks = WebhookOptions(slots=AT_ONCE)
    node = f"node-{random.random()}"
    dispatcher = Dispatcher(
        store, {"webhook": adapter}, node, SystemClock(), random.Random(1), OPTIONS, KEYRING, None, webhooks
    )
    Sink.count = 0
    watch = Stopwatch()
    running = asyncio.create_task(dispatcher.run())
    while Sink.count < rows:
        await asyncio.sleep(0.002)
    rate = watch.rate(rows)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await outbound.close()
    return rate


async def post_bare(port: int, rows: int) -> float:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_ONCE)) as session:
        numbers = iter(range(rows))

        async def work() -> None:
            for number in numbers:
                headers = signed_headers([SECRET], str(number), datetime.now(UTC), BODY)
                url = f"http://{HOSTS[number % len(HOSTS)]}:{port}/r"
                async with session.post(url, data=BODY, headers=headers) as answer:
                    await answer.read()

        watch = Stopwatch()
        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        return watch.rate(rows)
