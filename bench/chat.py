"""`chat`: drain notifications of type slack to a local sink, 200 at once, and the time to build a message.

Reference: a bare aiohttp loop with 200 requests at once that posts the same ready-made bytes and writes nothing. Ours:
one `Dispatcher` on PostgreSQL with 200 slots, from claim to apply: blocks built, hook URLs opened, answers classified,
attempts and audit entries written. The rate of a list is off, since it would be all that is measured. The sink answers
on ten loopback addresses in this process, so it costs both the same.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import aiohttp

from bench.harness import Figure, Report, Stopwatch, compare
from bench.material import LISTS, items
from bench.stores import Stores
from fieldpost.central.adapters.slack.adapter import SlackAdapter
from fieldpost.central.adapters.slack.message import slack_blocks
from fieldpost.central.adapters.teams.card import teams_card
from fieldpost.central.dispatch.dispatcher import Dispatcher
from fieldpost.central.dispatch.options import DispatchOptions
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.secrets.keyring import Keyring, SecretKey
from fieldpost.central.secrets.target_secrets import seal_secrets
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import lists
from fieldpost.clock import SystemClock
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.ids import NotificationId
from fieldpost.core.lists import Channel, NotificationList
from fieldpost.core.secret import Secret
from fieldpost.core.sms.segments import count_segments
from fieldpost.link.messages import Submit
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.outbound import Outbound

HOSTS = [f"127.0.1.{number}" for number in range(1, 11)]
AT_ONCE = 200
KEYRING = Keyring([SecretKey.of(bytes(32))])
OPTIONS = DispatchOptions(slots=AT_ONCE, batch_size=128, grace_s=0.1)
BUILT = 2_000
TEXT = "Pressure at pump 3 fell below 2.1 bar & <limits>.\n" * 40


class HookSink(asyncio.Protocol):
    """Answers every request as Slack does."""

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
            HookSink.count += 1
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


class UnlimitedSlack(SlackAdapter):
    list_rate = None


async def run(report: Report, stores: Stores, quick: bool) -> None:
    rows = 2_000 if quick else 20_000
    loop = asyncio.get_running_loop()
    first = await loop.create_server(HookSink, HOSTS[0], 0)
    port = first.sockets[0].getsockname()[1]
    servers = [first, *[await loop.create_server(HookSink, host, port) for host in HOSTS[1:]]]
    try:
        async with stores.open("postgresql") as store:
            await _add_lists(store, port)

            async def ours() -> float:
                return await _drain(store, rows)

            async def reference() -> float:
                return await _post_bare(port, rows)

            notes = f"{rows:,} messages, {AT_ONCE} at once, {LISTS} hooks on {len(HOSTS)} addresses"
            report.add(await compare("chat", ours, reference, 5, "messages/s", notes))
    finally:
        for server in servers:
            server.close()
    makers: dict[str, Callable[[Envelope], object]] = {
        "chat blocks": slack_blocks,
        "chat card": teams_card,
        "chat segments": lambda sent: count_segments(sent.body),
    }
    for name, make in makers.items():
        report.add(_building(name, make))


def _hook(number: int, port: int) -> str:
    return f"http://{HOSTS[number % len(HOSTS)]}:{port}/services/T0/B0/{number:024}"


async def _add_lists(store: Store, port: int) -> None:
    now = datetime.now(UTC)
    await store.write(lists.add_channel, Channel("rooms", "slack", {"style": "blocks"}, is_default=True), now)
    for number in range(LISTS):
        made = NotificationList(f"ops{number}", "slack", None, ("room",))
        sealed = seal_secrets(KEYRING, None, made, {"room": Secret(_hook(number, port))})
        await store.write(lists.add_list, sealed, now)


async def _drain(store: Store, rows: int) -> float:
    ingest = Ingest(store, SystemClock())
    for number in range(0, rows, 500):
        await ingest.submit("plant", Submit(number, items(min(500, rows - number))))
    outbound = Outbound(OutboundOptions(allow="127.0.1.0/24"))
    adapters = {"slack": UnlimitedSlack(outbound=outbound)}
    node = f"node-{random.random()}"
    dispatcher = Dispatcher(store, adapters, node, SystemClock(), random.Random(1), OPTIONS, KEYRING)
    HookSink.count = 0
    watch = Stopwatch()
    running = asyncio.create_task(dispatcher.run())
    while HookSink.count < rows:
        await asyncio.sleep(0.002)
    await dispatcher.idle()
    rate = watch.rate(rows)
    dispatcher.stop()
    await running
    await outbound.close()
    return rate


async def _post_bare(port: int, rows: int) -> float:
    body = slack_blocks(_envelope(items(1)[0].body)).message
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_ONCE)) as session:
        numbers = iter(range(rows))

        async def work() -> None:
            for number in numbers:
                headers = {"Content-Type": "application/json"}
                async with session.post(_hook(number % LISTS, port), data=body, headers=headers) as answer:
                    await answer.read()

        watch = Stopwatch()
        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        return watch.rate(rows)


def _building(name: str, make: Callable[[Envelope], object]) -> Figure:
    sent = _envelope(TEXT)
    began = time.process_time()
    for _ in range(BUILT):
        make(sent)
    each_ms = (time.process_time() - began) / BUILT * 1000
    return Figure(name, each_ms, "ms", notes=f"{each_ms:.4f} ms for a text of {len(TEXT)} bytes")


def _envelope(body: str) -> Envelope:
    return Envelope(
        notification_id=NotificationId("0198c8a0-0000-7000-8000-" + os.urandom(6).hex()),
        list_name="ops1",
        subject="Pump 3 pressure low",
        body=body,
        targets=("room",),
        settings={},
        dated=datetime.now(UTC),
        gate=lambda: None,
    )
