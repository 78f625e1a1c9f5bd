"""`email`: send mails to a sink over 20 connections, without delay and with 20 ms per round trip.

Reference: a bare aiosmtplib loop with 20 connected clients, each sending the same prepared bytes one after the other.
Ours: the email adapter with `max_connections = 20` and 64 concurrent attempts, as in a dispatcher, each with its own
notification: settings parsed, addresses checked, mail built, gate checked, one result per target. Sink and delay run in
their own processes. The notes give the time to build a mail (ms), and the rate of the whole path through store and
dispatcher (claim, attempt, apply).
"""

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import aiosmtplib

from bench.harness import Figure, Report, Round, Stopwatch, compare
from bench.mail_sink import HOST, delayed, sink
from bench.material import BODY, LISTS, items
from bench.stores import Stores
from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.central.adapters.email.compose import compose
from fieldpost.central.dispatch.dispatcher import Dispatcher
from fieldpost.central.dispatch.options import DispatchOptions
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.store.notifications import lists
from fieldpost.clock import SystemClock
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.outcome import Delivered, Outcome
from fieldpost.core.ids import NotificationId
from fieldpost.core.lists import Channel, NotificationList
from fieldpost.link.messages import Submit

CONNECTIONS = 20
ATTEMPTS = 64
ROUND_TRIP_S = 0.020
ROUNDS = 5
SENDER = "alerts@plant.example"


async def run(report: Report, stores: Stores, quick: bool) -> None:
    mails, slow_mails, drained = (1_500, 300, 1_000) if quick else (5_000, 5_000, 5_000)
    with sink() as (port, name):
        ours, reference = _rounds(port, mails)
        notes = f"{mails:,} mails, {CONNECTIONS} connections, {ATTEMPTS} attempts at a time, {name}"
        report.add(await compare("email", ours, reference, ROUNDS, "mails/s", notes))
        with delayed(port, ROUND_TRIP_S) as slow_port:
            ours, reference = _rounds(slow_port, slow_mails)
            notes = f"{slow_mails:,} mails, {CONNECTIONS} connections, 20 ms a round trip, {name}"
            report.add(await compare("email 20 ms", ours, reference, ROUNDS, "mails/s", notes))
        report.add(_building())
        rates = [await _drain(stores, port, drained) for _ in range(3)]
        notes = f"{drained:,} rows through store, dispatcher and adapter, PostgreSQL, {CONNECTIONS} connections"
        report.add(Figure("email drain", statistics.median(rates), "rows/s", notes=notes))


def _rounds(port: int, mails: int) -> tuple[Round, Round]:
    async def ours() -> float:
        adapter = EmailAdapter()
        numbers = iter(range(mails))
        await _at_once(CONNECTIONS, lambda: adapter.deliver(_envelope(port, 0)))  # connected, as the reference is
        watch = Stopwatch()

        async def attempts() -> None:
            for number in numbers:
                outcome = await adapter.deliver(_envelope(port, number))
                assert isinstance(outcome, Delivered), outcome

        await _at_once(ATTEMPTS, attempts)
        rate = watch.rate(mails)
        await adapter.close()
        return rate

    async def reference() -> float:
        ready = _built(0)
        clients = [aiosmtplib.SMTP(hostname=HOST, port=port, start_tls=False) for _ in range(CONNECTIONS)]
        await asyncio.gather(*(client.connect() for client in clients))
        await asyncio.gather(*(client.sendmail(SENDER, [_target(0)], ready) for client in clients))
        numbers = iter(range(mails))
        watch = Stopwatch()

        async def send(client: aiosmtplib.SMTP) -> None:
            for number in numbers:
                await client.sendmail(SENDER, [_target(number)], ready)

        await asyncio.gather(*map(send, clients))
        rate = watch.rate(mails)
        await asyncio.gather(*(client.quit() for client in clients))
        return rate

    return ours, reference


async def _at_once(count: int, work: Callable[[], Awaitable[Any]]) -> None:
    await asyncio.gather(*(work() for _ in range(count)))


def _building() -> Figure:
    count = 2_000
    began = time.perf_counter()
    for number in range(count):
        _built(number)
    each_ms = (time.perf_counter() - began) / count * 1000
    return Figure("email building", each_ms, "ms", notes=f"{each_ms:.4f} ms for a plain mail of {len(_built(0))} bytes")


def _built(number: int) -> bytes:
    return compose(
        notification_id=_id(number),
        message_id_domain="bench.example",
        from_address=SENDER,
        subject=_subject(number),
        body=BODY,
        dated=datetime.now(UTC),
    )


def _envelope(port: int, number: int) -> Envelope:
    return Envelope(
        notification_id=_id(number),
        list_name="operators",
        subject=_subject(number),
        body=BODY,
        targets=(_target(number),),
        settings=_settings(port),
        dated=datetime.now(UTC),
        gate=lambda: None,
    )


def _settings(port: int) -> dict[str, object]:
    return {
        "host": HOST,
        "port": port,
        "tls": "none",
        "from_address": SENDER,
        "max_connections": CONNECTIONS,
    }


def _id(number: int) -> NotificationId:
    return NotificationId(f"0198c8a0-0000-7000-8000-{number:012}")


def _subject(number: int) -> str:
    return f"Pump {number} pressure low"


def _target(number: int) -> str:
    return f"ops{number % LISTS}@plant.example"


class _Counting(EmailAdapter):
    """Set the event when all mails are delivered."""

    def __init__(self, wanted: int) -> None:
        super().__init__()
        self.done = asyncio.Event()
        self._left = wanted

    async def deliver(self, envelope: Envelope) -> Outcome:
        outcome = await super().deliver(envelope)
        assert isinstance(outcome, Delivered), outcome
        self._left -= 1
        if self._left <= 0:
            self.done.set()
        return outcome


async def _drain(stores: Stores, port: int, rows: int) -> float:
    async with stores.open("postgresql") as store:
        now = datetime.now(UTC)
        await store.write(lists.add_channel, Channel("mail", "email", _settings(port), is_default=True), now)
        for number in range(LISTS):
            one = NotificationList(f"ops{number}", "email", None, (_target(number),))
            await store.write(lists.add_list, one, now)
        ingest = Ingest(store, SystemClock())
        for number in range(0, rows, 500):
            await ingest.submit("plant", Submit(number, items(min(500, rows - number))))
        adapter = _Counting(rows)
        options = DispatchOptions(slots=256, batch_size=128)
        dispatcher = Dispatcher(store, {"email": adapter}, "node", SystemClock(), random.Random(1), options)
        watch = Stopwatch()
        running = asyncio.create_task(dispatcher.run())
        await adapter.done.wait()
        await dispatcher.idle()
        rate = watch.rate(rows)
        dispatcher.stop()
        await running
        await adapter.close()
        return rate
