"""Delivery paths and breakers as the dispatcher uses them: loaded by key on demand, and cached.

Paths are cached until the catalogue of lists, channels and subscriptions changes; one small query per `refresh_s` finds
that out. Breakers change with every failure, so they are loaded at each refresh, for the keys that have claimable rows
and for those behind which rows are held, a bounded number at a time.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import structlog
from sqlalchemy import Connection

from fieldpost.central.secrets.keyring import Keyring, Opened, SecretUnreadable
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import subscriptions
from fieldpost.central.store.notifications import breakers as breaker_rows
from fieldpost.central.store.notifications import due, lists, pauses
from fieldpost.central.store.notifications.turns import RATE_USED_UP
from fieldpost.central.store.schema import catalogue
from fieldpost.core.delivery.breaker import Breaker, BreakerState, is_blocked, is_waiting, next_probe
from fieldpost.core.delivery.holds import HoldKind, held_by, kind_of
from fieldpost.core.delivery.lifecycle import Hold
from fieldpost.core.delivery.outcome import Held, PermanentFailure, TargetPause
from fieldpost.core.delivery.routing import (
    RETRY_DEFAULTS,
    DeliveryPath,
    Directory,
    PathDefaults,
    SlotPool,
    channel_retry,
    refuse_part,
    resolve,
)
from fieldpost.core.events.subscription import SUBSCRIPTION_KEY
from fieldpost.core.lists import LISTS_TYPE, Channel
from fieldpost.core.notification import LIST_KEY, Notification, list_key
from fieldpost.core.secret import Secret

log = structlog.get_logger()

PAUSE_KEY = held_by(HoldKind.PAUSE, "")
READY_KEYS_MAX = 1000
"""How many keys with claimable rows a refresh looks at; the next one continues behind them."""
_NEVER = datetime.min.replace(tzinfo=UTC)

_NO_PAUSES: Mapping[str, TargetPause] = {}

Resolved = DeliveryPath | PermanentFailure


@dataclass
class PathSnapshot:
    """The result of a refresh."""

    version: int = -1
    """Of the catalogue of paths."""
    now: datetime = _NEVER
    """The database's time."""
    directory: Directory = field(default_factory=Directory)
    ready: tuple[str, ...] = ()
    """Delivery keys with claimable rows."""
    held: Mapping[str, datetime] = field(default_factory=dict)
    """Breakers that hold rows, with the earliest due time behind each."""
    paused: tuple[str, ...] = ()
    """Delivery keys with rows that a pause holds."""
    queued: set[str] = field(default_factory=set)
    """Delivery keys with rows in the queue behind their rates."""
    used_up: set[str] = field(default_factory=set)
    """Subscriptions whose rates were found used up since."""
    target_pauses: dict[str, dict[str, TargetPause]] = field(default_factory=dict)
    """By delivery key and address."""
    held_to: str = ""
    """Where the next refresh continues to read held keys; empty from the start."""
    breakers: dict[str, Breaker] = field(default_factory=dict)
    looked_up: set[str] = field(default_factory=set)
    """The breakers that were read; those without a row are closed. Other breakers are unknown."""
    has_suspects: bool = False


class Paths:
    """The cache of one node."""

    def __init__(self, defaults: PathDefaults, keyring: Keyring) -> None:
        self._defaults = defaults
        self._keyring = keyring
        self._paths: dict[str, Resolved] = {}
        self._wholes = Directory({})
        """The lists of lists of parts."""
        self._opened: dict[str, Opened | Held] = {}
        self._warned: set[tuple[str, int]] = set()
        self._of_channels: set[str] = set()
        """Breakers of channels that paths in the cache use: few, and read at every refresh."""
        self.seen_at = float("-inf")
        """Monotonic time of the last refresh."""
        self.is_stale = False
        """Whether to refresh before `refresh_s` has passed."""
        self.snapshot = PathSnapshot()
        self._after = dict.fromkeys(SlotPool, "")
        self._held_after = ""

    @property
    def now(self) -> datetime:
        return self.snapshot.now

    @property
    def breakers(self) -> dict[str, Breaker]:
        return self.snapshot.breakers

    def load(self, conn: Connection, *, now: datetime | None) -> PathSnapshot:
        """Read a new snapshot; `take` makes it the current one."""
        version = catalogue.version_of(conn, catalogue.PATHS)
        ready = tuple(
            key
            for pool in SlotPool
            for key in due.ready_keys(conn, pool.prefix, self._after[pool], READY_KEYS_MAX, now=now)
        )
        held = breaker_rows.held_keys(conn, self._held_after)
        known = self._paths if version == self.snapshot.version else {}
        paused = tuple(key.removeprefix(PAUSE_KEY) for key in held if key.startswith(PAUSE_KEY))
        at = database_time(conn, now)
        directory = load_directory(conn, [key for key in (*ready, *paused) if key not in known])
        fresh = {key: resolve(directory, key, self._defaults) for key in ready if key not in known}
        wanted = {path.breaker_key for key in ready if isinstance(path := known.get(key) or fresh[key], DeliveryPath)}
        wanted |= held.keys() | self._of_channels
        return PathSnapshot(
            version=version,
            now=at,
            directory=directory,
            ready=ready,
            paused=paused,
            queued={key.partition(":")[2] for key in held if kind_of(key).is_queue},
            target_pauses=_by_target(pauses.current(conn, at)),
            held={key: due_at for key, due_at in held.items() if kind_of(key) is HoldKind.BREAKER},
            held_to=next(reversed(held)) if len(held) >= breaker_rows.HELD_KEYS_MAX else "",
            breakers=breaker_rows.load(conn, wanted),
            looked_up=wanted,
            has_suspects=due.has_suspects(conn, now=now),
        )

    def take(self, snapshot: PathSnapshot, seen_at: float) -> None:
        """Use this snapshot from now on."""
        if snapshot.version != self.snapshot.version:
            self._paths.clear()
            self._wholes = Directory({})
            self._opened.clear()
            self._of_channels.clear()
        self.snapshot = snapshot
        self.seen_at, self.is_stale = seen_at, False
        self.add(snapshot.directory, (*snapshot.ready, *snapshot.paused))
        for pool in SlotPool:
            mine = [key for key in snapshot.ready if key.startswith(pool.prefix)]
            self._after[pool] = mine[-1] if len(mine) >= READY_KEYS_MAX else ""
        self._held_after = snapshot.held_to

    def add(self, directory: Directory, keys: Iterable[str]) -> None:
        """Resolve these keys from a directory that was loaded for them."""
        for key in keys:
            if key not in self._paths:
                path = self._paths[key] = resolve(directory, key, self._defaults)
                if isinstance(path, DeliveryPath) and isinstance(path.via, Channel):
                    self._of_channels.add(path.breaker_key)
        if wholes := {name: one for name, one in directory.lists.items() if one.type == LISTS_TYPE}:
            self._wholes = Directory({**self._wholes.lists, **wholes})
        for channel in directory.channels.values():
            self._warn_of_replaced(channel)

    async def prepare(self, store: Store, keys: Collection[str]) -> None:
        """Resolve these keys, and read those of their breakers that the last refresh did not read: their keys had no
        due rows then, or there were more keys than a refresh looks at."""
        missing = {key for key in keys if key not in self._paths}
        if missing:
            self.add(await store.read(load_directory, missing), missing)
        paths = (self._paths[key] for key in keys)
        wanted = {path.breaker_key for path in paths if isinstance(path, DeliveryPath)} - self.snapshot.looked_up
        if wanted:
            found = await store.read(breaker_rows.load, wanted)
            self.take_in({key: found.get(key, Breaker(key)) for key in wanted})

    def get(self, delivery_key: str) -> Resolved:
        """The path of a key that is resolved."""
        return self._paths[delivery_key]

    def of_notification(self, n: Notification) -> Resolved:
        """The path of a notification whose keys (`keys_of`) are resolved. The list of lists of a part may refuse it."""
        return refuse_part(self._wholes, n) or self._paths[n.delivery_key]

    def opened(self, path: Resolved) -> Opened | Held | None:
        """The path's settings with its secrets; unreadable secrets hold its notifications."""
        if isinstance(path, PermanentFailure):
            return None
        if path.delivery_key not in self._opened:
            try:
                self._opened[path.delivery_key] = self._keyring.open_owner(path.via)
            except SecretUnreadable as error:
                kind = HoldKind.BREAKER if isinstance(path.via, Channel) else HoldKind.OUR_SIDE
                self._opened[path.delivery_key] = Held(error.message, phase="secrets", kind=kind)
        return self._opened[path.delivery_key]

    async def target_secrets(self, store: Store, keys: Iterable[str]) -> dict[str, Mapping[str, Secret] | Held]:
        """The secrets of the targets of these delivery keys, as stored now; only for types that have any."""
        paths = [path for key in set(keys) if isinstance(path := self._paths[key], DeliveryPath)]
        names = {path.delivery_key.removeprefix(LIST_KEY): path for path in paths if path.has_target_secrets}
        if not names:
            return {}
        sealed = await store.read(lists.target_secrets, list(names))
        return {path.delivery_key: self._open_targets(name, sealed.get(name, {})) for name, path in names.items()}

    def _open_targets(self, name: str, sealed: Mapping[str, str]) -> Mapping[str, Secret] | Held:
        try:
            return self._keyring.open_targets(name, sealed)
        except SecretUnreadable as error:
            return Held(error.message, phase="secrets")

    def blocked(self) -> set[str]:
        """The keys with claimable rows that no attempt may be made for."""
        held = {key for key in self.snapshot.ready if self.hold_of(key) is not None}
        return held | self.snapshot.queued | self.snapshot.used_up

    def wait_of(self, key: str) -> datetime | None:
        """Until when its receiver, or the whole channel, asked to wait; None if it did not."""
        breaker = self._breaker_of(key)
        return breaker.wait_until if breaker is not None and is_waiting(breaker, self.now) else None

    def hold_of(self, key: str) -> tuple[HoldKind, Hold, str] | None:
        """The hold on the rows of a key: its kind, end and reason; None if they may be attempted."""
        path = self._paths.get(key)
        if not isinstance(path, DeliveryPath):
            return None
        if path.hold_reason is not None:
            return HoldKind.PAUSE, Hold(held_by(HoldKind.PAUSE, key), self.now), path.hold_reason
        breaker = self.snapshot.breakers.get(path.breaker_key)
        if breaker is None:
            return self._queue_of(key)
        if is_blocked(breaker):
            until = next_probe(breaker, path.breaker_policy, self.now)
            return HoldKind.BREAKER, Hold(breaker.key, until), f"the breaker is open: {breaker.last_error}"
        if breaker.wait_until is not None and is_waiting(breaker, self.now):
            kind = HoldKind(breaker.wait_kind or HoldKind.RATE_LIMIT)
            return kind, Hold(held_by(kind, key), breaker.wait_until), breaker.wait_reason or ""
        return self._queue_of(key)

    def _queue_of(self, key: str) -> tuple[HoldKind, Hold, str] | None:
        if key not in self.snapshot.queued:
            return None
        return HoldKind.RATE, Hold(held_by(HoldKind.RATE, key), self.now), RATE_USED_UP

    def spacing(self, key: str, kind: HoldKind) -> int:
        """Microseconds between the turns of rows that wait for the rate of their path."""
        path = self._paths.get(key)
        if kind is not HoldKind.RATE_LIMIT or not isinstance(path, DeliveryPath) or path.rate is None:
            return 0
        return path.rate.interval // timedelta(microseconds=1)

    def is_paused(self, key: str) -> bool:
        """Whether a person, or a missing test, keeps the key's rows from being attempted."""
        path = self._paths[key]
        return isinstance(path, DeliveryPath) and path.hold_reason is not None

    def hosts(self) -> dict[str, str]:
        """The keys with claimable rows whose hosts limit their deliveries, each with its host."""
        paths = ((key, self._paths.get(key)) for key in self.snapshot.ready)
        return {key: path.limits.host for key, path in paths if isinstance(path, DeliveryPath) and path.limits.host}

    def bursts(self) -> dict[str, int]:
        """The subscriptions with claimable rows and a rate, each with the deliveries that may start at once."""
        paths = ((key, self._paths.get(key)) for key in self.snapshot.ready)
        return {key: path.rate.burst for key, path in paths if isinstance(path, DeliveryPath) and path.rate is not None}

    def single(self) -> set[str]:
        """The subscriptions that are monitored: one attempt at a time, until it is clear whether they work."""
        return {
            key
            for key in self.snapshot.ready
            if key.startswith(SUBSCRIPTION_KEY) and (breaker := self._breaker_of(key)) and breaker.failures
        }

    def take_in(self, breakers: Mapping[str, Breaker]) -> bool:
        """Learn of breakers changed by this node's own results; whether one opened or closed."""
        known = self.snapshot.breakers
        changed = any(is_blocked(b) != is_blocked(known.get(key, Breaker(key))) for key, b in breakers.items())
        known.update(breakers)
        self.snapshot.looked_up.update(breakers)
        self.is_stale = self.is_stale or changed
        return changed

    def pauses_of(self, delivery_key: str) -> Mapping[str, TargetPause]:
        """The paused targets of a key, by address."""
        return self.snapshot.target_pauses.get(delivery_key, _NO_PAUSES)

    def note_waits(self, queued: Iterable[str], paused: Iterable[TargetPause]) -> None:
        """Learn of queues and pauses that this node's own results began."""
        self.snapshot.queued.update(queued)
        for one in paused:
            self.snapshot.target_pauses.setdefault(one.delivery_key, {})[one.address] = one

    def next_hold_end(self) -> datetime | None:
        """When the next row held behind a breaker may move: at the breaker's probe, or at the end of a short hold."""
        ends = []
        for key, due_at in self.snapshot.held.items():
            breaker = self.snapshot.breakers.get(key, Breaker(key))
            match breaker.state:
                case BreakerState.OPEN:
                    ends.append(breaker.open_until)
                case BreakerState.HALF_OPEN:
                    ends.append(breaker.probe_until)
                case BreakerState.CLOSED:
                    ends.append(due_at if breaker.failures else self.now)
        return min((end for end in ends if end is not None), default=None)

    def _breaker_of(self, key: str) -> Breaker | None:
        path = self._paths.get(key)
        return self.snapshot.breakers.get(path.breaker_key) if isinstance(path, DeliveryPath) else None

    def _warn_of_replaced(self, channel: Channel) -> None:
        """Log once per version which stored retry fields are out of range and were replaced."""
        if (channel.name, channel.version) in self._warned:
            return
        self._warned.add((channel.name, channel.version))
        for name in channel_retry(channel)[1]:
            log.warning(
                "channel.setting_replaced",
                channel=channel.name,
                setting=name,
                value=getattr(channel, name),
                used=RETRY_DEFAULTS[name],
            )


def keys_of(n: Notification) -> tuple[str, ...]:
    """The delivery keys that decide about a notification: its own and, for a part, that of the list of lists."""
    return (n.delivery_key,) if n.whole_list is None else (n.delivery_key, list_key(n.whole_list))


def _by_target(found: Iterable[TargetPause]) -> dict[str, dict[str, TargetPause]]:
    by_key: dict[str, dict[str, TargetPause]] = {}
    for one in found:
        by_key.setdefault(one.delivery_key, {})[one.address] = one
    return by_key


def load_directory(conn: Connection, keys: Collection[str]) -> Directory:
    """Lists, channels and subscriptions for these delivery keys."""
    ids = [key.removeprefix(SUBSCRIPTION_KEY) for key in keys if key.startswith(SUBSCRIPTION_KEY)]
    of_lists = lists.directory_of(conn, [key for key in keys if key.startswith(SlotPool.LISTS.prefix)])
    return Directory(of_lists.lists, of_lists.channels, subscriptions.these(conn, ids))
