"""A centre with the real webhook adapter, real receivers and a manual clock that both sides go by."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fieldpost.central.adapters.webhook.adapter import WebhookAdapter
from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.operate.bulk_actions import BulkActionRunner
from fieldpost.central.operate.subscriptions import SubscriptionActions
from fieldpost.core.events.event import Event, notification_id_of
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.ids import new_ids
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.outbound import Outbound
from fieldpost.testing import ManualClock, WebhookReceiver
from support.centre import Centre, open_centre
from support.front import ADMIN
from support.hooks import SOURCE, Hooks


class Receiving(Hooks):
    """`Hooks` whose subscriptions lead to a `WebhookReceiver`. Quick tries would wait for the manual clock: none."""

    def __init__(self, centre: Centre, clock: ManualClock, receiver: WebhookReceiver, outbound: Outbound) -> None:
        super().__init__(centre, clock)
        self.receiver = receiver
        adapter = WebhookAdapter(outbound=outbound, clock=clock)
        centre.adapters["webhook"] = adapter
        options = WebhookOptions(allow_plain=True)
        self.actions = SubscriptionActions(centre.store, {"webhook": adapter}, clock, centre.keyring, options)

    async def subscribe(self, name: str = "billing", **settings: object) -> Subscription:
        given = {"url": self.receiver.url(name), "quick_tries": 0, **settings}
        made = await self.actions.add(ADMIN, name, "shop", (FilterEntry(topic="orders.*"),), given)
        assert made.secret is not None
        self.receiver.add(name, made.secret.reveal())
        return made.subscription

    async def deliver(self, sweeps: int = 1) -> None:
        """All that is due, and held rows as far as they are released; a second passes before each sweep."""
        node = self.centre.dispatcher()
        async with node.running():
            for _ in range(sweeps):
                self.clock.advance(1)
                await node.sweep()
                await node.idle()

    async def recover(self, sweeps: int = 12) -> None:
        """Run bulk actions to their end and deliver what they made due."""
        await BulkActionRunner(self.centre.store, self.clock).sweep()
        await self.deliver(sweeps)

    def make_events(self, count: int, topic: str = "orders.created") -> list[Event]:
        ids = new_ids(self.clock.now(), os.urandom(10 * count))
        return [Event(event_id=one, topic=topic, source=SOURCE, payload=f'{{"n": "{one}"}}') for one in ids]


def ids_of(event_ids: list[str], subscription: Subscription) -> set[str]:
    """The ids of the notifications that these events cause for a subscription."""
    return {notification_id_of(event_id, subscription.subscription_id) for event_id in event_ids}


@asynccontextmanager
async def open_receiving(store_url: str, clock: ManualClock) -> AsyncIterator[Receiving]:
    outbound = Outbound(OutboundOptions(allow="127.0.0.1"))
    try:
        async with WebhookReceiver(clock=clock) as receiver, open_centre(store_url, clock) as centre:
            yield Receiving(centre, clock, receiver, outbound)
    finally:
        await outbound.close()
