"""Turns in the queues behind the rates of lists and channels: what a node takes, and when it asks again."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from fieldpost.central.dispatch.attempt import RunningAttempt
from fieldpost.central.dispatch.node_slots import NodeSlots
from fieldpost.central.dispatch.paths import Paths
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import turns
from fieldpost.central.store.notifications.claims import Claimed
from fieldpost.central.store.notifications.turns import Queue, Turns
from fieldpost.core.delivery.outcome import Held
from fieldpost.core.delivery.routing import DeliveryPath, SlotPool
from fieldpost.core.delivery.slots import SlotUse


class TurnTaker:
    """The queues as one node knows them. Without a queue it asks nothing."""

    def __init__(self, store: Store, node_id: str, paths: Paths, slots: NodeSlots, lease_s: float) -> None:
        self._store = store
        self._node_id = node_id
        self._paths = paths
        self._slots = slots
        self._lease_s = lease_s
        self._next_at: datetime | None = None
        """When the next turn comes, as far as is known."""
        self._must_ask = True
        self._is_short = False
        """Whether rows whose turn had come may have been left for lack of a slot."""

    @property
    def next_at(self) -> datetime | None:
        return self._next_at if self._paths.snapshot.queued else None

    def ask_again(self) -> None:
        """Queues may have begun or changed. The known time of the next turn still wakes the node."""
        self._must_ask = True

    async def take(self, use: SlotUse, most: int, now: datetime) -> Sequence[Claimed]:
        """Claim the notifications whose turn has come, at most `most`."""
        queued = self._paths.snapshot.queued
        if not queued or not (self._must_ask or (self._next_at is not None and self._next_at <= now)):
            return ()
        free = min(self._slots.free(SlotPool.LISTS, use), most)
        per_key = self._slots.limits[SlotPool.LISTS].per_key
        self._must_ask, self._next_at, self._is_short = False, None, not free
        if not free:
            return ()
        await self._paths.prepare(self._store, queued)
        ready = [key for key in sorted(queued) if self._paths.wait_of(key) is None]
        queues = [
            Queue(key, path.rates if isinstance(path, DeliveryPath) else (), per_key - use.busy[key])
            for key in ready
            if use.busy[key] < per_key
            for path in [self._paths.get(key)]
        ]
        taken = Turns((), None, ())
        if queues:
            taken = await self._store.write(
                turns.take_turns, self._node_id, queues, free, lease_s=self._lease_s, now=self._store.now()
            )
        started = Counter(one.notification.delivery_key for one in taken.claimed)
        self._is_short = (
            len(queues) < len(ready)
            or len(taken.claimed) == free
            or any(started[queue.delivery_key] == queue.slots for queue in queues)
        )
        queued.difference_update(taken.empty)
        self._next_at = taken.next_at
        return taken.claimed

    def note(self, ended: Sequence[RunningAttempt]) -> bool:
        """Use news of ended attempts about queues and pauses before the next refresh; whether to sweep now."""
        queued = {one.delivery_key for one in ended if isinstance(one.outcome, Held) and one.outcome.kind.is_queue}
        self._paths.note_waits(queued, (pause for one in ended for pause in one.target_pauses()))
        has_work = bool(queued) or (self._is_short and bool(self._paths.snapshot.queued))
        if has_work:
            self.ask_again()
        return has_work
