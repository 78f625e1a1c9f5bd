"""`latency`: from the ack of a submit to the start of its first attempt, at 500 notifications per second.

One process: `Ingest` accepts single submits at a steady rate, and one `Dispatcher` with default settings delivers them
through an adapter that records the time. There is no reference: comparable systems poll every 1 to 20 s. ADR
0035 has figures.
"""

import asyncio
import random
import time

from bench.harness import Figure, Report, percentile
from bench.material import NoOp, add_lists, items
from bench.stores import Stores
from fieldpost.central.dispatch.dispatcher import Dispatcher
from fieldpost.central.ingest.submit import Ingest
from fieldpost.clock import SystemClock
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.outcome import Outcome
from fieldpost.link.messages import Item, Submit

RATE = 500


class Noting(NoOp):
    def __init__(self) -> None:
        super().__init__()
        self.started: dict[str, float] = {}

    async def deliver(self, envelope: Envelope) -> Outcome:
        self.started[envelope.notification_id] = time.perf_counter()
        return await super().deliver(envelope)


async def run(report: Report, stores: Stores, quick: bool) -> None:
    seconds = 6 if quick else 20
    for kind in ("sqlite", "postgresql"):
        async with stores.open(kind) as store:
            await add_lists(store)
            adapter = Noting()
            dispatcher = Dispatcher(store, {"email": adapter}, "node", SystemClock(), random.Random(1))
            running = asyncio.create_task(dispatcher.run())
            ingest = Ingest(store, SystemClock())
            acked: dict[str, float] = {}

            async def submit(item: Item, ingest: Ingest = ingest, acked: dict[str, float] = acked) -> None:
                await ingest.submit("plant", Submit(1, (item,)))
                acked[item.notification_id] = time.perf_counter()

            began = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for number, item in enumerate(items(RATE * seconds)):
                    await asyncio.sleep(max(0.0, began + number / RATE - time.perf_counter()))
                    group.create_task(submit(item))
            while len(adapter.started) < len(acked):
                await asyncio.sleep(0.01)
            dispatcher.stop()
            await running
            waits = [max(0.0, adapter.started[i] - at) * 1000 for i, at in acked.items()]
            for part in (0.5, 0.99):
                notes = f"{RATE}/s for {seconds} s, single submits"
                report.add(Figure(f"latency {kind} p{part * 100:g}", percentile(waits, part), "ms", notes=notes))
