"""Test data: 100 lists, 500-byte notifications, an adapter that does nothing."""

import os
from datetime import UTC, datetime

from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import lists
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.outcome import Delivered, Outcome
from fieldpost.core.ids import new_id
from fieldpost.core.lists import Channel, NotificationList
from fieldpost.link.messages import Item

LISTS = 100
BODY = "Pressure at pump 3 fell below 2.1 bar.\n" * 10


async def add_lists(store: Store) -> None:
    now = datetime.now(UTC)
    await store.write(lists.add_channel, Channel("mail", "email", {}, is_default=True), now)
    for number in range(LISTS):
        one = NotificationList(f"ops{number}", "email", None, (f"ops{number}@plant.example",))
        await store.write(lists.add_list, one, now)


def items(count: int, lists: int = LISTS) -> tuple[Item, ...]:
    now = datetime.now(UTC)
    return tuple(
        Item(
            new_id(now, os.urandom(10)), f"ops{number % lists}", f"Pump {number} pressure low", BODY, script="watch.py"
        )
        for number in range(count)
    )


class NoOp:
    """An adapter that reports delivery immediately."""

    type = "email"
    deadline_s = 30.0
    secrets: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.count = 0

    def check_settings(self, settings: object) -> dict[str, object]:
        return {}

    def check_target(self, address: str) -> str:
        return address

    def target_key(self, address: str) -> str:
        return address

    async def deliver(self, envelope: Envelope) -> Outcome:
        self.count += 1
        return Delivered()

    async def close(self) -> None:
        return
