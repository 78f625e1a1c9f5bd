"""How a node shares its delivery slots between delivery keys.

A *pool* (lists or subscriptions) has a number of slots. `per_key` of them are the share that a key may use whenever
slots are free. A key may use more only while no other key has due notifications, and only three quarters of the pool,
so that a key that becomes due finds a free slot. When another key has due notifications, a key beyond its share claims
nothing until it is back within it.

Receivers of subscriptions are many, and some hang. Once half of the slots are in use, the share of each is the slots
divided by the receivers with due notifications (`fair_share`), so that a burst gives every receiver its turn before one
has eight slots. A receiver whose oldest attempt has lasted for `STALL_S`, without a success since, is *stalled*: it
gets no further slot until the attempt ends. So a hanging receiver uses one or two slots, however long its queue is.

Subscriptions of one host share the deliveries that the host may have at once (`HostShares`). Where these are few, the
keys take turns.

An attempt that takes longer than `long_s` moves to a second pool of the same size, where a key may have `per_key`
attempts, and frees its slot. A key with such an attempt is limited to its share: a server that hangs gets no more.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field

from fieldpost.core.delivery.lanes import Lane, retry_first

STALL_S = 1.0


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
    oldest: dict[str, float] = field(default_factory=dict)
    """When the oldest attempt of each key began."""
    unwritten: int = 0
    """Deliveries whose results wait to be written. They use no slot, but there are at most as many as slots."""

    def free(self, limits: SlotLimits) -> int:
        return max(0, limits.slots - self.busy.total() - max(0, self.unwritten - limits.slots))

    def ample(self, limits: SlotLimits) -> int:
        """How many slots are free until half of them are in use."""
        return max(0, limits.slots // 2 - self.busy.total())

    def stalled(self, worked: Mapping[str, float], now: float) -> set[str]:
        """The keys whose oldest attempt lasts long, given when each key last had a success."""
        ends = ((key, max(began, worked.get(key, began))) for key, began in self.oldest.items())
        return {key for key, since in ends if now - since >= STALL_S}

    def may_move(self, key: str, limits: SlotLimits) -> bool:
        """Whether a long attempt of this key may free its slot."""
        return self.long.total() < limits.slots and self.long[key] < limits.per_key


def fair_share(limits: SlotLimits, ready: int) -> int:
    """The share of a key while this many keys have due notifications: all slots divided by them, from one up to
    `per_key`."""
    return min(limits.per_key, -(-limits.slots // max(1, ready)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How many notifications of a lane to claim: in total, and per key less those in `busy`."""

    lane: Lane
    limit: int
    per_key: int
    busy: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HostShares:
    """The claims that keys of crowded hosts may make: together, no more than the free slots of their host."""

    blocked: Set[str] = frozenset()
    """Keys that get nothing this time."""
    most: dict[str, int] = field(default_factory=dict)
    """How many notifications each other key of these hosts may claim."""
    default: int | None = None
    """The same for the keys of all other hosts; None without a limit."""

    def of(self, key: str) -> int | None:
        """How many notifications the key may claim; None without a limit."""
        return self.most.get(key, self.default)


NO_HOST_LIMIT = HostShares()


def share_room(keys: Collection[str], room: int, after: str, idle: Collection[str] = ()) -> dict[str, int]:
    """How many notifications each key may claim of the room that its host has. If not every key can have one, those
    behind the key `after` come first, and `idle` ones last."""
    if len(keys) <= room:
        return dict.fromkeys(keys, room // max(1, len(keys)))
    turns = sorted(keys, key=lambda key: (key in idle, key <= after, key))
    return dict.fromkeys(turns[: max(0, room)], 1)


def plan_shares(
    use: SlotUse,
    limits: SlotLimits,
    free: int,
    *,
    blocked: Iterable[str] = (),
    single: Iterable[str] = (),
    most: Mapping[str, int] = NO_HOST_LIMIT.most,
) -> list[Share]:
    """The claims within the shares of the keys, in order.

    The retry lane's own quarter comes first, of the pool and of each key's share, so that first attempts cannot starve
    retries; the rest goes to either lane. `blocked` keys get nothing, `single` keys have one slot, and keys in
    `most` get at most that number.
    """
    per_key = limits.per_key
    first = retry_first(per_key, per_key, 0)
    busy = dict(use.busy)
    for key in single:
        busy[key] = busy.get(key, 0) + per_key - 1
    for key, count in most.items():
        if busy.get(key, 0) < per_key - count:
            busy[key] = per_key - count
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
