"""A process that submits given notifications many times at once: `submitting_process.py URL COPIES LIST ID...`.

It waits for a line on stdin before it starts, and prints one verdict a line.
"""

import asyncio
import sys

from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.store.engine.database_url import open_store
from fieldpost.clock import SystemClock
from fieldpost.link.messages import Item, Submit

SITE = "plant-7"


def submit_of(list_name: str, notification_id: str) -> Submit:
    return Submit(1, (Item(notification_id, list_name, "Pump 3 stopped", "No flow."),))


async def submit(url: str, copies: int, list_name: str, ids: list[str]) -> None:
    store = open_store(url)
    ingest = Ingest(store, SystemClock())
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    try:
        for one in ids:
            acks = await asyncio.gather(*(ingest.submit(SITE, submit_of(list_name, one)) for _ in range(copies)))
            for ack in acks:
                print(ack.results[0].notification_id, ack.results[0].verdict, flush=True)
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(submit(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]))
