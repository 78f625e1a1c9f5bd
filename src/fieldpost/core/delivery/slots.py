"""How a node shares its delivery slots between delivery keys.

A *pool* (lists or subscriptions) has a number of slots. `per_key` of them are the share that a key may use whenever
slots are free. A key may use more only while no other key has due notifications, and only three quarters of the pool,
so that a key that becomes due finds a free slot. When another key has due notifications, a key beyond its share claims
nothing until it is back within it.

An attempt that takes longer than `long_s` moves to a second pool of the same size, where a key may have `per_key`
attempts, and frees its slot. A key with such an attempt is limited to its share: a server that hangs gets no more.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from fieldpost.core.delivery.lanes import Lane, retry_first


@dataclass(frozen=True, slots=True)
class SlotLimits:
    """The size of one pool."""

    slots: int
    per_key: int

    @property
    def extra_max(self) -> int:
        """How many slots may be in use for a key to claim beyond its share."""
        return self.slots - max(1, self.slots // 4)


@dataclass(slots=True)
class SlotUse:
    """The attempts that a node has in progress in one pool."""

    busy: Counter[str] = field(default_factory=Counter)
    """Slots in use, by delivery key."""
    retrying: Counter[str] = field(default_factory=Counter)
    """Those of them in the retry lane."""
    long: Counter[str] = field(default_factory=Counter)
    """Attempts in the pool of long ones, by delivery key."""
    slow: set[str] = field(default_factory=set)
    """Keys with an attempt older than `long_s`."""

    def free(self, limits: SlotLimits) -> int:
        return max(0, limits.slots - self.busy.total())

    def may_move(self, key: str, limits: SlotLimits) -> bool:
        """Whether a long attempt of this key may free its slot."""
        return self.long.total() < limits.slots and self.long[key] < limits.per_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How many notifications of a lane to claim: in total, and per key less those in `busy`."""

    lane: Lane
    limit: int
    per_key: int
    busy: Mapping[str, int]


def plan_shares(
    use: SlotUse, limits: SlotLimits, free: int, *, blocked: Iterable[str] = (), single: Iterable[str] = ()
) -> list[Share]:
    """What to claim within the shares of the keys, in order.

    The retry lane's own quarter comes first, of the pool and of each key's share, so that first attempts cannot starve
    retries; what is left goes to either lane. `blocked` keys get nothing, `single` keys have one slot.
    """
    per_key = limits.per_key
    first = retry_first(per_key, per_key, 0)
    busy = dict(use.busy)
    for key in single:
        busy[key] = busy.get(key, 0) + per_key - 1
    used = {key: first - retry_first(per_key, per_key - count, use.retrying[key]) for key, count in busy.items()}
    busy |= dict.fromkeys(blocked, per_key)
    used |= dict.fromkeys(blocked, first)
    own = retry_first(limits.slots, free, use.retrying.total())
    return [
        Share(lane=Lane.RETRY, limit=own, per_key=first, busy=used),
        Share(lane=Lane.FRESH, limit=free, per_key=per_key, busy=busy),
        Share(lane=Lane.RETRY, limit=free, per_key=per_key, busy=busy),
    ]


def extra_keys(
    use: SlotUse, limits: SlotLimits, claimed: Mapping[str, int], *, excluded: Collection[str] = ()
) -> list[str]:
    """The keys that have used up their share after these claims, and so may have more due notifications."""
    keys = use.busy.keys() | claimed.keys()
    return sorted(key for key in keys if use.busy[key] + claimed.get(key, 0) >= limits.per_key and key not in excluded)


def extra_limit(use: SlotUse, limits: SlotLimits, claimed: int, free: int, waiting: Collection[str]) -> int:
    """How many more notifications to claim if `waiting` are all keys that still have due ones: for one key only."""
    if len(waiting) != 1 or next(iter(waiting)) in use.slow:
        return 0
    return max(0, min(free, limits.extra_max - use.busy.total()) - claimed)


def last_in_walk(keys: Collection[str], after: str) -> str:
    """The key that a walk which began behind `after` served last: it goes to the end and then on from the start."""
    return max([key for key in keys if key <= after] or keys)
