"""Quotas per site and node, so that no site can crowd out the others: connections, items and bytes.

Items and bytes are counted by token buckets that fill at a steady rate. Central accepts a message while the buckets of
its site are not in debt and charges it afterwards, so that no message is too large to ever pass. A site in debt gets
the time to wait and keeps its messages. Data and control have separate buckets: a backlog must not delay a health
report.
"""

from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from fieldpost.clock import Clock
from fieldpost.core.errors import Unavailable
from fieldpost.front.options import FrontOptions

ADDRESSES_MAX = 10_000
"""How many addresses are remembered per endpoint without a login."""
DOCUMENTS_PER_S = 50.0
"""Sustained rate of reads of the ZGW API's document from one address."""
BUSY_S = 5.0
"""The time to wait that a site with too many connections gets."""
VALUES_PER_ITEM = 16
"""The JSON values of an ordinary row: a message with more of them is charged as more items."""
PAUSE_S = 1.0
"""How long central stops reading a connection whose site is in debt."""


class LinkKind(StrEnum):
    """The purpose of a link connection."""

    DATA = "data"
    CONTROL = "control"


class TooMuch(Unavailable):
    """A site exceeds its quota; it may try again after `wait_s`."""

    def __init__(self, code: str, message: str, wait_s: float) -> None:
        super().__init__(code, message)
        self.wait_s = wait_s


@dataclass(slots=True)
class Bucket:
    """A token bucket: fills by `rate` per second up to `burst`; a negative level is debt. `now` is monotonic."""

    rate: float
    burst: float
    level: float
    at: float

    def debt_s(self, now: float) -> float:
        """The seconds until the debt is paid; 0 without debt."""
        self.level = min(self.burst, self.level + self.rate * max(0.0, now - self.at))
        self.at = now
        return max(0.0, -self.level / self.rate)

    def charge(self, amount: float) -> None:
        self.level -= amount


class Allowances:
    """The quotas of all sites at this node."""

    def __init__(self, options: FrontOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._connections: Counter[tuple[str, LinkKind]] = Counter()
        self._buckets: dict[tuple[str, LinkKind], tuple[Bucket, Bucket]] = {}

    @contextmanager
    def connection(self, site: str, kind: LinkKind = LinkKind.DATA) -> Iterator[None]:
        """Count a request while the block runs; TooMuch if the site has too many."""
        give_back = self.take_connection(site, kind)
        try:
            yield
        finally:
            give_back()

    def take_connection(self, site: str, kind: LinkKind) -> Callable[[], None]:
        """Count a connection until the returned function is called; TooMuch if the site has too many."""
        count, count_max = self._connections[site, kind], self._options.connections_per_site
        if count >= count_max:
            raise TooMuch("link.connections", f"the site has {count} connections; the maximum is {count_max}", BUSY_S)
        self._connections[site, kind] += 1

        def give_back() -> None:
            self._connections[site, kind] -= 1
            if not self._connections[site, kind]:
                del self._connections[site, kind]

        return give_back

    def check(self, site: str, kind: LinkKind = LinkKind.DATA) -> None:
        """Raise TooMuch while the site is in debt."""
        now = self._clock.monotonic()
        wait_s = max(bucket.debt_s(now) for bucket in self._buckets_of(site, kind))
        if wait_s > 0:
            raise TooMuch("link.quota", "the site has exceeded its quota", wait_s)

    def charge(self, site: str, kind: LinkKind = LinkKind.DATA, *, items: int = 0, bytes: int = 0) -> None:
        by_items, by_bytes = self._buckets_of(site, kind)
        by_items.charge(items)
        by_bytes.charge(bytes)

    def charge_values(self, site: str, kind: LinkKind, values: int) -> None:
        """Charge the work of the strict parser, in items of ordinary size."""
        self._buckets_of(site, kind)[0].charge(values / VALUES_PER_ITEM)

    async def pause(self) -> None:
        await self._clock.sleep(PAUSE_S)

    def _buckets_of(self, site: str, kind: LinkKind) -> tuple[Bucket, Bucket]:
        found = self._buckets.get((site, kind))
        if found is None:
            rates = (self._options.items_per_s, self._options.bytes_per_s)
            now = self._clock.monotonic()
            bursts = [(rate, rate * self._options.burst_s) for rate in rates]
            items, bytes_ = (Bucket(rate, burst, burst, now) for rate, burst in bursts)
            found = self._buckets[site, kind] = (items, bytes_)
        return found


class AddressAllowances(ABC):
    """How many requests without a login an address may make, refilled at a steady rate."""

    def __init__(self, rate: float, burst_s: float, clock: Clock) -> None:
        self._rate = rate
        self._burst = rate * burst_s
        self._clock = clock
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, address: str) -> None:
        """Charge one request; TooMuch beyond the rate."""
        now = self._clock.monotonic()
        bucket = self._buckets.setdefault(address, Bucket(self._rate, self._burst, self._burst, now))
        self._buckets.move_to_end(address)
        if len(self._buckets) > ADDRESSES_MAX:
            self._buckets.popitem(last=False)
        if wait_s := bucket.debt_s(now):
            raise self.refusal(wait_s)
        bucket.charge(1)

    @abstractmethod
    def refusal(self, wait_s: float) -> TooMuch: ...


class ReceiptAllowances(AddressAllowances):
    """Of receipts: `front.receipts_per_s`."""

    def __init__(self, options: FrontOptions, clock: Clock) -> None:
        super().__init__(options.receipts_per_s, options.burst_s, clock)

    def refusal(self, wait_s: float) -> TooMuch:
        return TooMuch("receipt.too_many", "too many receipts from this address", wait_s)


class DocumentAllowances(AddressAllowances):
    """Of reads of the ZGW API's document."""

    def __init__(self, options: FrontOptions, clock: Clock) -> None:
        super().__init__(DOCUMENTS_PER_S, options.burst_s, clock)

    def refusal(self, wait_s: float) -> TooMuch:
        return TooMuch("zgw.too_many", "too many requests for this document from this address", wait_s)
