"""Is central well: can the store be used, and how much is where."""

from collections.abc import Mapping

from fieldpost.central.store import kpis, lists
from fieldpost.central.store.engine import Store
from fieldpost.central.store.keyring import Keyring
from fieldpost.central.store.moment import moment
from fieldpost.clock import Clock
from fieldpost.core.errors import Unavailable
from fieldpost.core.notification import Status

FRESH_S = 2.0
REST = 20.0
"""Counting rests for so many times as long as it took, so that looking never becomes the load."""


class Health:
    """Looking at central itself."""

    def __init__(self, store: Store, clock: Clock, keyring: Keyring | None = None) -> None:
        self._store = store
        self._clock = clock
        self._keyring = keyring or Keyring()
        self._counts: Mapping[Status, int] = {}
        self._counted_until: float | None = None

    async def check_store(self) -> None:
        """Returns when the store answers and takes writes, raises Unavailable when it does not."""
        await self._store.read(moment, self._store.now())
        # A store that is read-only or full answers every question: only its last write tells.
        if (trouble := self._store.trouble) is not None:
            raise Unavailable(trouble.code, trouble.message, hint=trouble.hint)

    async def troubles(self) -> list[str]:
        """What is wrong although central works: keys that are missing, and channels whose secrets they would open."""
        channels = await self._store.read(lists.all_channels)
        found = [self._keyring.trouble, *(self._keyring.trouble_of(channel) for channel in channels)]
        return [trouble for trouble in found if trouble is not None]

    async def counts(self) -> Mapping[Status, int]:
        """How many notifications stand in each status, as of a moment ago."""
        began = self._clock.monotonic()
        if self._counted_until is None or began >= self._counted_until:
            self._counts = await self._store.read(kpis.count_by_status)
            ended = self._clock.monotonic()
            self._counted_until = ended + max(FRESH_S, REST * (ended - began))
        return self._counts
