"""`rate`: 30,000 rows behind three channels with a rate of 25/1s each, two nodes; and mail next to them.

Reference of `rate used`: the rate itself, 75 deliveries per second. A window of a second must never contain more than
25 of a channel, so with bursts of two the steady rate is 24 per second: at most 0.96 of the reference can be used.
Reference of `rate mail`: the same mail drained by the same two nodes without the rows behind rates.
"""

import asyncio
import random
from datetime import UTC, datetime

from bench.dispatch import OPTIONS
from bench.harness import Figure, Report, Stopwatch, compare
from bench.material import NoOp, add_lists, items
from bench.stores import Stores
from fieldpost.central.dispatch.dispatcher import Dispatcher
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import lists
from fieldpost.clock import SystemClock
from fieldpost.core.delivery.rate import parse_rate
from fieldpost.core.lists import Channel, NotificationList
from fieldpost.link.messages import Item, Submit

CHANNELS = 3
RATE = "25/1s"
PER_S = 25 * CHANNELS
WARM_UP_S = 3.0


class Chat(NoOp):
    type = "chat"


async def run(report: Report, stores: Stores, quick: bool) -> None:
    rows, seconds = (6_000, 8.0) if quick else (30_000, 20.0)
    mails = 2_000 if quick else 10_000
    async with stores.open("postgresql") as limited, stores.open("postgresql") as free:
        for store in (limited, free):
            await add_lists(store)
        await _fill(limited, rows)
        chat = Chat()
        made = [_node(limited, chat) for _ in range(2)]
        nodes = [asyncio.create_task(node.run()) for node in made]
        await asyncio.sleep(WARM_UP_S)  # the first rows are claimed and find their place in the queues
        watch, before = Stopwatch(), chat.count
        await asyncio.sleep(seconds)
        notes = f"{rows:,} rows behind {CHANNELS} channels of {RATE}, two nodes, {seconds:g} s; reference: the rate"
        report.add(Figure("rate used", watch.rate(chat.count - before), "rows/s", PER_S, notes=notes))
        for node in made:
            node.stop()
        await asyncio.gather(*nodes)
        notes = f"{mails:,} mails, two nodes; reference: without the rows behind rates"
        rounds = 3
        report.add(
            await compare(
                "rate mail", lambda: _mail(limited, mails), lambda: _mail(free, mails), rounds, "rows/s", notes
            )
        )


def _node(store: Store, chat: Chat, mail: NoOp | None = None) -> Dispatcher:
    adapters = {"chat": chat, "email": mail or NoOp()}
    return Dispatcher(store, adapters, f"node-{random.random()}", SystemClock(), random.Random(1), OPTIONS)


async def _fill(store: Store, rows: int) -> None:
    now, ingest = datetime.now(UTC), Ingest(store, SystemClock())
    for number in range(CHANNELS):
        await store.write(lists.add_channel, Channel(f"chat{number}", "chat", {}, rate=parse_rate(RATE)), now)
        one = NotificationList(f"chat{number}", "chat", f"chat{number}", (f"room{number}",))
        await store.write(lists.add_list, one, now)
    for start in range(0, rows, 500):
        batch = tuple(
            Item(one.notification_id, f"chat{number % CHANNELS}", one.subject, one.body)
            for number, one in enumerate(items(min(500, rows - start)))
        )
        await ingest.submit("plant", Submit(start, batch))


async def _mail(store: Store, rows: int) -> float:
    """Drain mail by two nodes, next to whatever waits for its rate."""
    ingest, mail, chat = Ingest(store, SystemClock()), NoOp(), Chat()
    for start in range(0, rows, 500):
        await ingest.submit("plant", Submit(start, items(min(500, rows - start))))
    made = [_node(store, chat, mail) for _ in range(2)]
    watch = Stopwatch()
    nodes = [asyncio.create_task(node.run()) for node in made]
    while mail.count < rows:
        await asyncio.sleep(0.002)
    rate = watch.rate(rows)
    for node in made:
        node.stop()
    await asyncio.gather(*nodes)
    return rate
