"""The centre's backend for tests: a real store, ingest and dispatchers, and an adapter that answers as it is told."""

import asyncio
import os
import random
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import Connection, text

from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.dispatch.dispatcher import Dispatcher
from fieldpost.central.dispatch.options import DispatchOptions
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.rendering.composer import Composer
from fieldpost.central.rendering.pool import RenderPool
from fieldpost.central.secrets.keyring import Keyring, SecretKey
from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import attempts, audit, breakers, claims, lists, records
from fieldpost.central.store.notifications.attempts import AttemptRecord
from fieldpost.central.store.notifications.claim_orders import Order
from fieldpost.central.store.notifications.claims import Claimed, Lane
from fieldpost.central.watch.metrics import Metrics
from fieldpost.clock import Clock
from fieldpost.core.audit import AuditEntry
from fieldpost.core.delivery import lifecycle
from fieldpost.core.delivery.adapter import Adapter, Envelope
from fieldpost.core.delivery.breaker import Breaker, channel_key
from fieldpost.core.delivery.outcome import Delivered, Outcome
from fieldpost.core.delivery.rate import parse_rate
from fieldpost.core.delivery.retry import RetryPolicy
from fieldpost.core.delivery.routing import SUBSCRIPTION_RETRY, SlotPool
from fieldpost.core.delivery.slots import Share, SlotLimits, SlotUse
from fieldpost.core.ids import new_id
from fieldpost.core.lists import Channel, NotificationList
from fieldpost.core.notification import Notification
from fieldpost.link.messages import Ack, Item, Submit
from fieldpost.testing import ManualClock

SITE = "plant-7"
LEASE_S = 90.0
DEADLINE_S = 30.0
"""How long a test waits for what must happen before it fails."""

Answer = Outcome | BaseException | Callable[[Envelope], Awaitable[Outcome]]


def order(shares: Sequence[Share], free: int) -> Order:
    """An order for rows of lists by these shares, and no more of a key than its share."""
    limits = SlotLimits(free, free)
    return Order(
        pool=SlotPool.LISTS, shares=shares, free=free, after=dict.fromkeys(Lane, ""), use=SlotUse(), limits=limits
    )


class ScriptedAdapter:
    """An adapter that sends nothing: it notes each envelope and answers as told for its list, else `Delivered`.

    An answer may be an outcome, an exception to raise, or an async function of the envelope.
    """

    def __init__(self, type: str = "email", deadline_s: float = 60.0) -> None:
        self.type = type
        self.deadline_s = deadline_s
        self.secrets = frozenset({"password"})
        self.envelopes: list[Envelope] = []
        self.next: dict[str, deque[Answer]] = defaultdict(deque)
        """Per list: one answer for each attempt to come."""
        self.always: dict[str, Answer] = {}
        """Per list: the answer when none is queued."""
        self.running = 0
        self.running_max = 0
        self._called = asyncio.Condition()

    def answer(self, list_name: str, *answers: Answer) -> None:
        """Queue answers for the list's next attempts."""
        self.next[list_name].extend(answers)

    @property
    def count(self) -> int:
        """How many envelopes have come."""
        return len(self.envelopes)

    def sent(self, list_name: str | None = None) -> list[str]:
        """The ids of the envelopes so far, in order."""
        return [e.notification_id for e in self.envelopes if list_name in (None, e.list_name)]

    async def called(self, count: int, list_name: str | None = None) -> None:
        """Return once so many envelopes have come."""
        async with asyncio.timeout(DEADLINE_S), self._called:
            await self._called.wait_for(lambda: len(self.sent(list_name)) >= count)

    def check_settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        return dict(settings)

    def check_target(self, address: str) -> str:
        return address

    def target_key(self, address: str) -> str:
        return address

    async def deliver(self, envelope: Envelope) -> Outcome:
        self.envelopes.append(envelope)
        async with self._called:
            self._called.notify_all()
        queued = self.next[envelope.list_name]
        answer = queued.popleft() if queued else self.always.get(envelope.list_name, Delivered())
        if isinstance(answer, BaseException):
            raise answer
        if not callable(answer):
            return answer
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        try:
            return await answer(envelope)
        finally:
            self.running -= 1

    async def close(self) -> None:
        pass


class Hanging:
    """An answer that comes only when the test lets go, or never: then the attempt ends by cancellation."""

    def __init__(self, outcome: Outcome | None = None, *, calls_gate: bool = False) -> None:
        self.outcome = outcome or Delivered()
        self.calls_gate = calls_gate
        self.sent: list[str] = []
        """What got past the gate."""
        self._let_go = asyncio.Event()

    def let_go(self) -> None:
        self._let_go.set()

    async def __call__(self, envelope: Envelope) -> Outcome:
        await self._let_go.wait()
        if self.calls_gate:
            envelope.gate()
        self.sent.append(envelope.notification_id)
        return self.outcome


class Centre:
    """One store with what is needed to send, deliver and look."""

    def __init__(self, store: Store, clock: Clock, adapter: ScriptedAdapter) -> None:
        self.store = store
        self.clock = clock
        self.adapter = adapter
        self.adapters: dict[str, Adapter] = {adapter.type: adapter}
        self.metrics = Metrics(clock)
        self.pool = RenderPool()
        self.composer = Composer(self.pool, self.adapters)
        self.ingest = Ingest(store, clock, meter=self.metrics, composer=self.composer)
        self.keyring = Keyring([SecretKey.of(bytes(32))])

    def item(self, list_name: str = "ops", subject: str = "Pump 3 stopped", **more: Any) -> Item:
        body = more.pop("body", "No flow since 08:14.")
        notification_id = more.pop("notification_id", None) or new_id(self.clock.now(), os.urandom(10))
        return Item(notification_id, list_name, subject, body, **more)

    async def submit(self, *items: Item, site: str = SITE) -> Ack:
        return await self.ingest.submit(site, Submit(1, items))

    async def send(self, list_name: str = "ops", **more: Any) -> str:
        """One notification into the table; its id."""
        return (await self.send_many(1, list_name, **more))[0]

    async def send_many(self, count: int, list_name: str = "ops", *, site: str = SITE, **more: Any) -> list[str]:
        items = [self.item(list_name, **more) for _ in range(count)]
        for start in range(0, count, 500):
            ack = await self.submit(*items[start : start + 500], site=site)
            assert {result.verdict for result in ack.results} == {"accepted"}
        return [item.notification_id for item in items]

    async def add_channel(
        self,
        name: str = "mail",
        *,
        type: str = "email",
        default: bool = True,
        max_retries: int = 3,
        retry_delay_s: float = 60.0,
        rate: str | None = None,
        **settings: Any,
    ) -> None:
        policy = {"max_retries": max_retries, "retry_delay_s": retry_delay_s, "rate": rate and parse_rate(rate)}
        made = Channel(name, type, settings, default, **policy)  # type: ignore[arg-type]
        await self.store.write(lists.add_channel, made, self.clock.now())

    async def add_list(self, name: str = "ops", *targets: str, **more: Any) -> None:
        addresses = targets or (f"{name}@example.org",)
        made = NotificationList(name, more.pop("type", "email"), targets=addresses, **more)
        await self.store.write(lists.add_list, made, self.clock.now())

    def dispatcher(
        self,
        node_id: str = "node-1",
        *,
        clock: Clock | None = None,
        webhooks: WebhookOptions | None = None,
        abonnement_retry: RetryPolicy = SUBSCRIPTION_RETRY,
        **options: Any,
    ) -> Dispatcher:
        return Dispatcher(
            self.store,
            self.adapters,
            node_id,
            clock or self.clock,
            random.Random(7),
            DispatchOptions(**options),
            self.keyring,
            self.metrics,
            webhooks,
            composer=self.composer,
            abonnement_retry=abonnement_retry,
        )

    async def deliver(self, dispatcher: Dispatcher | None = None, **options: Any) -> None:
        """All that is due, to the end of its attempt. Time passes first, so that lists and channels are seen anew."""
        if isinstance(self.clock, ManualClock):
            self.clock.advance(1)
        if dispatcher is not None:
            await self.drain(dispatcher)
            return
        made = self.dispatcher(**options)
        async with made.running():
            await self.drain(made)

    async def drain(self, *dispatchers: Dispatcher) -> None:
        """Sweeps until none begins an attempt any more."""
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*(dispatcher.idle() for dispatcher in dispatchers))
            begun = -1
            while begun != self.adapter.count:
                begun = self.adapter.count
                await asyncio.gather(*(dispatcher.sweep() for dispatcher in dispatchers))
                await asyncio.gather(*(dispatcher.idle() for dispatcher in dispatchers))

    async def get(self, notification_id: str) -> Notification:
        found = await self.store.read(records.get, notification_id)
        assert found is not None
        return found

    async def attempts(self, notification_id: str) -> list[AttemptRecord]:
        return await self.store.read(attempts.history, notification_id)

    async def audit(self, notification_id: str) -> list[AuditEntry]:
        return await self.store.read(audit.of_notification, notification_id)

    async def story(self, notification_id: str) -> list[str]:
        """What the audit tells, in short: `notify_deliver attempted` and the like."""
        return [f"{entry.kind.value} {entry.status.value}" for entry in await self.audit(notification_id)]

    async def breaker(self, channel: str = "mail") -> Breaker:
        key = channel_key(channel)
        return (await self.store.read(breakers.load, [key])).get(key, Breaker(key))

    async def claim(self, owner: str = "a", lane: Lane = Lane.FRESH, **more: Any) -> list[Claimed]:
        """What a node of this name takes of what is due, and never is heard of again unless the test sees to it."""
        given = {"limit": 100, "per_key": 100, "busy": {}, "after": "", "lease_s": LEASE_S} | more
        return await self.store.write(claims.claim_due, owner, lane, **given, now=self.store.now())

    async def claim_of(self, notification_id: str) -> tuple[str | None, int, int]:
        """Owner, token and orphan count."""

        def look(conn: Connection) -> tuple[str | None, int, int]:
            statement = text(
                "select claim_owner, claim_token, orphan_count from notifications where notification_id = :i"
            )
            row = conn.execute(statement, {"i": notification_id}).one()
            return row.claim_owner, row.claim_token, row.orphan_count

        return await self.store.read(look)

    async def retry(self, notification_id: str) -> bool:
        """An operator's Retry of the row as it stands."""
        seen = await self.get(notification_id)
        now = self.clock.now()
        return await self.store.write(records.change, seen, lifecycle.retry(seen, now), now)

    async def rows(self, query: str) -> list[tuple[object, ...]]:
        """What a query of the test's own finds."""

        def look(conn: Connection) -> list[tuple[object, ...]]:
            return [tuple(row) for row in conn.exec_driver_sql(query)]

        return await self.store.read(look)

    async def execute(self, *statements: str) -> None:
        """Plain SQL, as a visitor of the database would write it."""

        def run(conn: Connection) -> None:
            for statement in statements:
                conn.exec_driver_sql(statement)

        await self.store.write(run)

    @property
    def is_postgresql(self) -> bool:
        return self.store.url.startswith("postgresql")


@asynccontextmanager
async def open_centre(url: str, clock: Clock | None = None, store_clock: Clock | None = None) -> AsyncIterator[Centre]:
    """The centre on this store. Its time is the clock's, on PostgreSQL too."""
    clock = clock or ManualClock()
    store = open_store(url, store_clock or clock)
    centre = Centre(store, clock, ScriptedAdapter())
    try:
        yield centre
    finally:
        await centre.pool.close()
        await store.close()
