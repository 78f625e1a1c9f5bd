"""A centre with subscriptions whose receivers answer as a test says."""

import os
from datetime import timedelta

from fieldpost.central.ingest.publish import PublishOptions
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.operate.subscriptions import SubscriptionActions
from fieldpost.central.store.notifications import breakers
from fieldpost.core.delivery.breaker import Breaker, BreakerState
from fieldpost.core.delivery.outcome import Evidence, TransientFailure
from fieldpost.core.events.event import Event, notification_id_of
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.subscription import Subscription, subscription_key
from fieldpost.core.ids import new_id
from fieldpost.core.notification import Notification
from fieldpost.testing import ManualClock
from support.centre import Centre, ScriptedAdapter
from support.front import ADMIN

FAILED = TransientFailure("the receiver answered 500", evidence=Evidence.FAILS)
SOURCE = "app:shop"


class Hooks:
    """A centre with subscriptions whose receivers answer as a test says."""

    def __init__(self, centre: Centre, clock: ManualClock) -> None:
        self.centre = centre
        self.clock = clock
        self.adapter = centre.adapter = ScriptedAdapter("webhook")
        centre.adapters["webhook"] = self.adapter
        self.actions = SubscriptionActions(centre.store, {}, clock, centre.keyring)
        self.publisher = Ingest(centre.store, clock, events=PublishOptions(open_topics=True)).publisher

    async def subscribe(self, name: str = "billing", **settings: object) -> Subscription:
        given = {"url": f"https://{name}.example/in", **settings}
        return (await self.actions.add(ADMIN, name, "shop", (FilterEntry(topic="orders.*"),), given)).subscription

    async def publish(self, count: int = 1, topic: str = "orders.created") -> list[str]:
        """Events; their ids."""
        now = self.clock.now()
        made = [
            Event(event_id=new_id(now, os.urandom(10)), topic=topic, source=SOURCE, payload=f'{{"n": {n}}}')
            for n in range(count)
        ]
        for verdict in await self.publisher.publish(SOURCE, made):
            assert verdict.verdict == "accepted", verdict
        return [event.event_id for event in made]

    async def one(self, subscription: Subscription) -> str:
        """One notification for this subscription."""
        [event_id] = await self.publish()
        return notification_id_of(event_id, subscription.subscription_id)

    async def breaker(self, subscription: Subscription) -> Breaker:
        key = subscription_key(subscription.subscription_id)
        return (await self.centre.store.read(breakers.load, [key])).get(key, Breaker(key))

    async def get(self, notification_id: str) -> Notification:
        return await self.centre.get(notification_id)

    async def state(self, subscription: Subscription) -> Subscription:
        return await self.actions.get(subscription.subscription_id)

    async def notices(self) -> list[str]:
        found = await self.centre.rows("select topic from notices order by created_at, event_id")
        return [str(topic).removeprefix("fieldpost.subscription.") for (topic,) in found]

    async def hold_open(self, subscription: Subscription, seconds: float) -> None:
        """Open the breaker for this long, as ten failures would for `break_s`."""
        key, now = subscription_key(subscription.subscription_id), self.clock.now()

        def opened(breaker: Breaker) -> Breaker:
            until = now + timedelta(seconds=seconds)
            return Breaker(key, BreakerState.OPEN, 10, now, now, "503", open_until=until, version=breaker.version)

        await self.centre.store.write(breakers.change, key, opened)

    async def block(self, subscription: Subscription) -> None:
        """Fail until the breaker opens."""
        self.adapter.always[subscription.name] = FAILED
        await self.publish(10)
        await self.centre.deliver()
        for _ in range(12):
            if (await self.breaker(subscription)).state is BreakerState.OPEN:
                return
            await self.centre.deliver()
        raise AssertionError(await self.breaker(subscription))
