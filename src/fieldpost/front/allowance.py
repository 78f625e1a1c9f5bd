"""What one site may take of this node, so that none can crowd out the others: connections, items and bytes.

Items and bytes are counted by buckets that fill at a steady rate. A message is taken while its site's buckets are not
in debt, and charged afterwards, so that none is too large ever to pass; a site in debt is told how long to wait, and
keeps what it has. Data and control are counted apart: a backlog must not keep a health report waiting.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from fieldpost.clock import Clock
from fieldpost.core.errors import Unavailable
from fieldpost.front.options import FrontOptions

BUSY_S = 5.0
"""How long to wait for a connection to come free."""
PAUSE_S = 1.0
"""A connection whose site is in debt is not read for so long, however fast it sends."""


class LinkKind(StrEnum):
    """What a connection of the link is for."""

    DATA = "data"
    CONTROL = "control"


class TooMuch(Unavailable):
    """A site wants more than it may have now; after `wait_s` it may try again."""

    def __init__(self, code: str, message: str, wait_s: float) -> None:
        super().__init__(code, message)
        self.wait_s = wait_s


@dataclass(slots=True)
class Bucket:
    """Fills by `rate` a second up to `burst`; `level` below nothing is debt. `now` is monotonic."""

    rate: float
    burst: float
    level: float
    at: float

    def debt_s(self, now: float) -> float:
        """How long until nothing is owed; 0 when nothing is."""
        self.level = min(self.burst, self.level + self.rate * max(0.0, now - self.at))
        self.at = now
        return max(0.0, -self.level / self.rate)

    def charge(self, amount: float) -> None:
        self.level -= amount


class Allowances:
    """One for a node; sites come by the name that their token gave."""

    def __init__(self, options: FrontOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._connections: Counter[tuple[str, LinkKind]] = Counter()
        self._buckets: dict[tuple[str, LinkKind], tuple[Bucket, Bucket]] = {}

    @contextmanager
    def connection(self, site: str, lane: LinkKind = LinkKind.DATA) -> Iterator[None]:
        """Held while a connection, or a request that is being read, is the site's; TooMuch when it has too many."""
        count, count_max = self._connections[site, lane], self._options.connections_per_site
        if count >= count_max:
            raise TooMuch("link.connections", f"the site has {count} connections, at most {count_max}", BUSY_S)
        self._connections[site, lane] += 1
        try:
            yield
        finally:
            self._connections[site, lane] -= 1
            if not self._connections[site, lane]:
                del self._connections[site, lane]

    def check(self, site: str, lane: LinkKind = LinkKind.DATA) -> None:
        """Raise TooMuch while the site is in debt."""
        now = self._clock.monotonic()
        wait_s = max(bucket.debt_s(now) for bucket in self._of(site, lane))
        if wait_s > 0:
            raise TooMuch("link.quota", "the site has sent more than it may for now", wait_s)

    def charge(self, site: str, lane: LinkKind = LinkKind.DATA, *, items: int = 0, bytes: int = 0) -> None:
        by_items, by_bytes = self._of(site, lane)
        by_items.charge(items)
        by_bytes.charge(bytes)

    async def pause(self) -> None:
        await self._clock.sleep(PAUSE_S)

    def _of(self, site: str, lane: LinkKind) -> tuple[Bucket, Bucket]:
        found = self._buckets.get((site, lane))
        if found is None:
            rates = (self._options.items_per_s, self._options.bytes_per_s)
            now = self._clock.monotonic()
            bursts = [(rate, rate * self._options.burst_s) for rate in rates]
            items, bytes_ = (Bucket(rate, burst, burst, now) for rate, burst in bursts)
            found = self._buckets[site, lane] = (items, bytes_)
        return found
