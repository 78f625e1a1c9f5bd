"""Lists, channels and breakers as a sweep sees them: looked at together, a second old at most."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

from sqlalchemy import Connection

from fieldpost.central.secrets.keyring import Keyring, Opened, SecretUnreadable
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.notifications import breakers as breaker_rows
from fieldpost.central.store.notifications import due, lists
from fieldpost.core.breaker import Breaker, BreakerState, channel_key, is_blocked
from fieldpost.core.lifecycle import Policy
from fieldpost.core.lists import DeliveryPath, Directory, resolve
from fieldpost.core.notification import list_key
from fieldpost.core.outcome import Held, PermanentFailure
from fieldpost.core.retry import ATTEMPTS_MAX_DEFAULT, RETRY_DELAY_S_DEFAULT, Fixed, fixed_from_settings


class ViewLogger(Protocol):
    def warning(self, event: str, **fields: object) -> object: ...


_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass
class View:
    """What a sweep goes by. The retry policy is part of it, so it is read anew with every look."""

    seen_at: float = 0.0
    """Monotonic."""
    now: datetime = _NEVER
    """The database's time at the look."""
    is_stale: bool = False
    """To be looked at again whatever its age."""
    directory: Directory = field(default_factory=Directory)
    breakers: dict[str, Breaker] = field(default_factory=dict)
    held: Mapping[str, datetime] = field(default_factory=dict)
    blocked_keys: set[str] = field(default_factory=set)
    has_suspects: bool = False
    """Whether rows wait to be attempted alone."""
    _routes: dict[str, DeliveryPath | PermanentFailure] = field(default_factory=dict)
    _policies: dict[str, Policy] = field(default_factory=dict)
    _opened: dict[str, Opened | Held] = field(default_factory=dict)

    def route(self, list_name: str) -> DeliveryPath | PermanentFailure:
        if list_name not in self._routes:
            self._routes[list_name] = resolve(self.directory, list_name)
        return self._routes[list_name]

    def policy(self, route: DeliveryPath | PermanentFailure, hold_max: timedelta) -> Policy:
        """The list's own retry policy, else its channel's, else the fixed one of the channel's settings."""
        if isinstance(route, PermanentFailure):
            return Policy(_fixed({})[0], hold_max=hold_max)
        name = route.notification_list.name
        if name not in self._policies:
            retry = route.notification_list.retry or route.channel.retry or _fixed(route.channel.settings)[0]
            self._policies[name] = Policy(retry, route.notification_list.park_uncertain, hold_max)
        return self._policies[name]

    def opened(self, route: DeliveryPath | PermanentFailure, keyring: Keyring) -> Opened | Held | None:
        """The settings of the route's channel with its secrets; unreadable ones are trouble of the channel."""
        if isinstance(route, PermanentFailure):
            return None
        channel = route.channel
        if channel.name not in self._opened:
            try:
                self._opened[channel.name] = keyring.open_channel(channel)
            except SecretUnreadable as error:
                self._opened[channel.name] = Held(error.message, phase="secrets")
        return self._opened[channel.name]

    def keys_behind(self, breaker_key: str) -> list[str]:
        """The delivery keys of the lists whose channel has this breaker."""
        return [
            list_key(name)
            for name in self.directory.lists
            if isinstance(route := self.route(name), DeliveryPath) and channel_key(route.channel.name) == breaker_key
        ]

    def take_in(self, breakers: Mapping[str, Breaker]) -> bool:
        """Learn of breakers changed by this node's own results; whether one began or ceased to block."""
        changed = [
            b for key, b in breakers.items() if is_blocked(b) != is_blocked(self.breakers.get(key, Breaker(key)))
        ]
        self.breakers.update(breakers)
        for breaker in changed:
            keys = self.keys_behind(breaker.key)
            self.blocked_keys = self.blocked_keys | set(keys) if is_blocked(breaker) else self.blocked_keys - set(keys)
        self.is_stale = self.is_stale or bool(changed)
        return bool(changed)

    def next_hold_end(self) -> datetime | None:
        """When the next held row may move: its breaker's probe, or the end of a short hold."""
        ends = []
        for key, due_at in self.held.items():
            breaker = self.breakers.get(key, Breaker(key))
            match breaker.state:
                case BreakerState.OPEN:
                    ends.append(breaker.open_until)
                case BreakerState.HALF_OPEN:
                    ends.append(breaker.probe_until)
                case BreakerState.CLOSED:
                    ends.append(due_at if breaker.failures else self.now)
        return min((end for end in ends if end is not None), default=None)

    def warn_of_clamped(self, log: ViewLogger, told: set[tuple[str, int, str]]) -> None:
        """Say once which stored settings had to be replaced, so that a bad one is not a riddle."""
        for channel in self.directory.channels.values():
            for name in _fixed(channel.settings)[1]:
                if (channel.name, channel.version, name) not in told:
                    told.add((channel.name, channel.version, name))
                    log.warning(
                        "channel.setting_replaced",
                        channel=channel.name,
                        setting=name,
                        value=channel.settings.get(name),
                        used=_DEFAULTS[name],
                    )


_DEFAULTS = {"max_retries": ATTEMPTS_MAX_DEFAULT, "retry_delay_s": RETRY_DELAY_S_DEFAULT}


def _fixed(settings: Mapping[str, object]) -> tuple[Fixed, Sequence[str]]:
    return fixed_from_settings(*(settings.get(name, default) for name, default in _DEFAULTS.items()))


def load_view(conn: Connection, seen_at: float, *, now: datetime | None) -> View:
    """Look at everything a sweep goes by."""
    view = View(
        seen_at=seen_at,
        now=database_time(conn, now),
        directory=lists.directory(conn),
        breakers=breaker_rows.load(conn),
        held=breaker_rows.held_keys(conn),
        has_suspects=due.has_suspects(conn, now=now),
    )
    for breaker in view.breakers.values():
        if is_blocked(breaker):
            view.blocked_keys.update(view.keys_behind(breaker.key))
    return view
