"""Events of recent claims: an event that goes to many subscriptions is read once, not with each claim."""

from collections import OrderedDict
from collections.abc import Collection

from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import events
from fieldpost.core.events.event import RecordedEvent

SIZE_MAX = 4 * 1024 * 1024
"""In characters of payload, plus `SIZE_OF_REST` for each event."""
SIZE_OF_REST = 1024


class RecentEvents:
    """Recorded events by id, the most recently used ones; an event never changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[str, RecordedEvent] = OrderedDict()
        self._size = 0

    async def these(self, ids: Collection[str]) -> dict[str, RecordedEvent]:
        """Those of these events that are recorded."""
        kept = {event_id: self._kept[event_id] for event_id in ids if event_id in self._kept}
        for event_id in kept:
            self._kept.move_to_end(event_id)
        missing = [event_id for event_id in ids if event_id not in kept]
        found = await self._store.read_one(events.these, missing) if missing else {}
        self._keep(found)
        return kept | found

    def _keep(self, found: dict[str, RecordedEvent]) -> None:
        for event_id, one in found.items():
            if event_id not in self._kept:
                self._kept[event_id] = one
                self._size += _size(one)
        while self._size > SIZE_MAX:
            _, dropped = self._kept.popitem(last=False)
            self._size -= _size(dropped)


def _size(one: RecordedEvent) -> int:
    return len(one.event.payload) + SIZE_OF_REST
