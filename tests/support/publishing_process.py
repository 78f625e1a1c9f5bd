"""A process that publishes given events many times at once: `python publishing_process.py URL COPIES EVENT_ID...`.

It waits for a line on stdin before it starts, and prints one verdict a line.
"""

import asyncio
import sys

from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.store.engine.database_url import open_store
from fieldpost.clock import SystemClock
from fieldpost.core.events.event import Event

SOURCE = "app:shop"


def make_events(ids: list[str]) -> list[Event]:
    return [Event(event_id=one, topic="orders.created", source=SOURCE, payload='{"order": 17}') for one in ids]


async def publish(url: str, copies: int, ids: list[str]) -> None:
    store = open_store(url)
    publisher = Ingest(store, SystemClock()).publisher
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    try:
        for event in make_events(ids):
            verdicts = await asyncio.gather(*(publisher.publish(SOURCE, [event]) for _ in range(copies)))
            for (verdict,) in verdicts:
                print(verdict.event_id, verdict.verdict, flush=True)
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(publish(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
