"""The same events published many times at once while subscriptions come and go.

The changes of subscriptions are made one after another, so there is a list of all states that the catalogue was in. The
notifications of an event must be those of one of these states, and not of one that ended before the event was recorded.
"""

import asyncio
import os
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import events, subscriptions, topics
from fieldpost.clock import SystemClock
from fieldpost.core.events.event import notification_id_of
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.subscription import Subscription, SubscriptionState
from fieldpost.core.events.topic import Topic
from fieldpost.core.ids import new_id
from support import publishing_process
from support.publishing_process import SOURCE, make_events

COPIES = 25
PROCESSES = 4
EVENTS = 4


@dataclass
class Changes:
    """Subscriptions that are added and removed, and every set of active ones with the time at which it began."""

    store: Store
    active: list[Subscription] = field(default_factory=list)
    states: list[tuple[datetime, datetime, frozenset[str]]] = field(default_factory=list)
    """Before the change, after its commit, and the subscriptions active from then on."""

    async def add(self) -> None:
        subscription_id = new_id(datetime.now(UTC), os.urandom(10))
        made = Subscription(
            subscription_id=subscription_id, name=subscription_id, owner="team", filter=(FilterEntry(),)
        )
        began = datetime.now(UTC)
        await self.store.write(subscriptions.add, made, began)
        self.active.append(made)
        self._note(began)

    async def remove(self) -> None:
        gone = self.active.pop(0)
        began = datetime.now(UTC)
        disabled = replace(gone, state=SubscriptionState.DISABLED)
        assert await self.store.write(subscriptions.change, disabled, began)
        self._note(began)

    async def go_on(self, until: asyncio.Event) -> None:
        while not until.is_set():
            await self.add()
            await self.remove()

    def possible(self, at: datetime, until: datetime) -> set[frozenset[str]]:
        """The sets that may have been active in this time."""
        last = max(number for number, (_, after, _) in enumerate(self.states) if after <= at)
        return {active for before, _, active in self.states[last:] if before <= until}

    def _note(self, began: datetime) -> None:
        active = frozenset(one.subscription_id for one in self.active)
        self.states.append((began, datetime.now(UTC), active))


async def begin(store: Store) -> Changes:
    await store.write(topics.add, Topic(name="orders.created"), datetime.now(UTC))
    changes = Changes(store)
    for _ in range(5):
        await changes.add()
    return changes


async def check(store: Store, changes: Changes, ids: list[str], margin: timedelta = timedelta(0)) -> None:
    for event_id in ids:
        recorded = await store.read(events.get, event_id)
        assert recorded is not None
        found = Counter(one.list_name for one in await store.read(events.notifications_of, event_id, 1000))
        assert set(found.values()) <= {1}, "none has two"
        assert recorded.match_count == len(found)
        given = frozenset(found)
        assert given in changes.possible(recorded.created_at, recorded.created_at + margin)
        by_id = {one.notification_id for one in await store.read(events.notifications_of, event_id, 1000)}
        assert by_id == {notification_id_of(event_id, one) for one in given}


@pytest.mark.req("DEC-43")
async def test_four_processes_publish_the_same_events_while_subscriptions_come_and_go(pg_url: str) -> None:
    store = open_store(pg_url)
    try:
        changes = await begin(store)
        ids = [new_id(datetime.now(UTC), os.urandom(10)) for _ in range(EVENTS)]
        arguments = (pg_url, str(COPIES), *ids)
        script = str(Path(publishing_process.__file__))
        processes = [
            await asyncio.create_subprocess_exec(
                sys.executable, script, *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
            for _ in range(PROCESSES)
        ]
        async with asyncio.timeout(120):
            for process in processes:
                assert process.stdout is not None
                assert await process.stdout.readline() == b"ready\n"
            is_over = asyncio.Event()
            changing = asyncio.create_task(changes.go_on(is_over))
            printed = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
            is_over.set()
            await changing
        verdicts = Counter(line for out, _ in printed for line in out.decode().splitlines())
        for event_id in ids:
            assert verdicts[f"{event_id} accepted"] == 1
            assert verdicts[f"{event_id} duplicate"] == PROCESSES * COPIES - 1
        assert len(changes.states) > 10, "subscriptions changed meanwhile"
        await check(store, changes, ids)
    finally:
        await store.close()


@pytest.mark.req("DEC-43")
async def test_four_publishers_of_one_process_publish_the_same_events_on_sqlite(sqlite_url: str) -> None:
    store = open_store(sqlite_url)
    try:
        changes = await begin(store)
        ids = [new_id(datetime.now(UTC), os.urandom(10)) for _ in range(EVENTS)]
        publishers = [Ingest(store, SystemClock()).publisher for _ in range(PROCESSES)]
        is_over = asyncio.Event()
        async with asyncio.timeout(60):
            changing = asyncio.create_task(changes.go_on(is_over))
            for event in make_events(ids):
                published = [one.publish(SOURCE, [event]) for one in publishers for _ in range(COPIES)]
                verdicts = Counter(verdict.verdict for (verdict,) in await asyncio.gather(*published))
                assert verdicts == {"accepted": 1, "duplicate": PROCESSES * COPIES - 1}
            is_over.set()
            await changing
        # The time of an event on SQLite is that of its request, which may be before its commit.
        await check(store, changes, ids, margin=timedelta(minutes=1))
    finally:
        await store.close()
