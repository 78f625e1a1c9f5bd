"""Delivery paths and breakers as the dispatcher uses them: loaded by key on demand, and cached.

Paths are cached until the catalogue of lists, channels and subscriptions changes; one small query per `refresh_s` finds
that out. Breakers change with every failure, so they are loaded at each refresh, for the keys that have claimable rows
and for those behind which rows are held, a bounded number at a time.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog
from sqlalchemy import Connection

from fieldpost.central.dispatch.options import DispatchOptions
from fieldpost.central.secrets.keyring import Keyring, Opened, SecretUnreadable
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.events import subscriptions
from fieldpost.central.store.notifications import breakers as breaker_rows
from fieldpost.central.store.notifications import due, lists
from fieldpost.central.store.schema import catalogue
from fieldpost.core.delivery.breaker import Breaker, BreakerState, is_blocked
from fieldpost.core.delivery.holds import HoldKind
from fieldpost.core.delivery.outcome import Held, PermanentFailure
from fieldpost.core.delivery.routing import RETRY_DEFAULTS, DeliveryPath, Directory, SlotPool, channel_retry, resolve
from fieldpost.core.events.subscription import SUBSCRIPTION_KEY
from fieldpost.core.lists import Channel

log = structlog.get_logger()

READY_KEYS_MAX = 1000
"""How many keys with claimable rows a refresh looks at; the next one continues behind them."""
_NEVER = datetime.min.replace(tzinfo=UTC)

Resolved = DeliveryPath | PermanentFailure


@dataclass
class PathSnapshot:
    """What a refresh found."""

    version: int = -1
    """Of the catalogue of paths."""
    now: datetime = _NEVER
    """The database's time."""
    directory: Directory = field(default_factory=Directory)
    ready: tuple[str, ...] = ()
    """Delivery keys with claimable rows."""
    held: Mapping[str, datetime] = field(default_factory=dict)
    """Breakers that hold rows, with the earliest due time behind each."""
    breakers: dict[str, Breaker] = field(default_factory=dict)
    looked_up: set[str] = field(default_factory=set)
    """The breakers that were read; those without a row are closed. Other breakers are unknown."""
    has_suspects: bool = False


class Paths:
    """The cache of one node."""

    def __init__(self, options: DispatchOptions, keyring: Keyring) -> None:
        self._defaults = options.path_defaults
        self._keyring = keyring
        self._paths: dict[str, Resolved] = {}
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
        directory = load_directory(conn, [key for key in ready if key not in known])
        fresh = {key: resolve(directory, key, self._defaults) for key in ready if key not in known}
        wanted = {path.breaker_key for key in ready if isinstance(path := known.get(key) or fresh[key], DeliveryPath)}
        wanted |= held.keys() | self._of_channels
        return PathSnapshot(
            version=version,
            now=database_time(conn, now),
            directory=directory,
            ready=ready,
            held=held,
            breakers=breaker_rows.load(conn, wanted),
            looked_up=wanted,
            has_suspects=due.has_suspects(conn, now=now),
        )

    def take(self, snapshot: PathSnapshot, seen_at: float) -> None:
        """Use this snapshot from now on."""
        if snapshot.version != self.snapshot.version:
            self._paths.clear()
            self._opened.clear()
            self._of_channels.clear()
        self.snapshot = snapshot
        self.seen_at, self.is_stale = seen_at, False
        self.add(snapshot.directory, snapshot.ready)
        for pool in SlotPool:
            mine = [key for key in snapshot.ready if key.startswith(pool.prefix)]
            self._after[pool] = mine[-1] if len(mine) >= READY_KEYS_MAX else ""
        is_full = len(snapshot.held) >= breaker_rows.HELD_KEYS_MAX
        self._held_after = next(reversed(list(snapshot.held))) if is_full else ""

    def add(self, directory: Directory, keys: Iterable[str]) -> None:
        """Resolve these keys from a directory that was loaded for them."""
        for key in keys:
            if key not in self._paths:
                path = self._paths[key] = resolve(directory, key, self._defaults)
                if isinstance(path, DeliveryPath) and isinstance(path.via, Channel):
                    self._of_channels.add(path.breaker_key)
        for channel in directory.channels.values():
            self._warn_of_replaced(channel)

    def missing(self, keys: Iterable[str]) -> set[str]:
        """Those of these keys that are not resolved yet."""
        return {key for key in keys if key not in self._paths}

    def unknown_breakers(self, keys: Iterable[str]) -> set[str]:
        """The breakers of these resolved keys that the last refresh did not read: their keys had no due rows then, or
        there were more keys than a refresh looks at."""
        paths = (self._paths[key] for key in set(keys))
        wanted = {path.breaker_key for path in paths if isinstance(path, DeliveryPath)}
        return wanted - self.snapshot.looked_up

    def get(self, delivery_key: str) -> Resolved:
        """The path of a key that is resolved."""
        return self._paths[delivery_key]

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

    def blocked(self) -> set[str]:
        """The keys with claimable rows whose breaker is open."""
        return {key for key in self.snapshot.ready if (breaker := self._breaker_of(key)) and is_blocked(breaker)}

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


def load_directory(conn: Connection, keys: Collection[str]) -> Directory:
    """Lists, channels and subscriptions for these delivery keys."""
    ids = [key.removeprefix(SUBSCRIPTION_KEY) for key in keys if key.startswith(SUBSCRIPTION_KEY)]
    of_lists = lists.directory_of(conn, [key for key in keys if key.startswith(SlotPool.LISTS.prefix)])
    return Directory(of_lists.lists, of_lists.channels, subscriptions.these(conn, ids))
