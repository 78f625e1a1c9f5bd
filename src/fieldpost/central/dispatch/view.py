"""The dispatcher's snapshot of lists, channels and breakers, reloaded every second."""

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
class DispatchView:
    """A snapshot used by sweeps. It includes retry policies, so changed policies apply after the next reload."""

    seen_at: float = 0.0
    """Monotonic time of the reload."""
    now: datetime = _NEVER
    """The database's time at the reload."""
    is_stale: bool = False
    """Whether to reload regardless of age."""
    directory: Directory = field(default_factory=Directory)
    breakers: dict[str, Breaker] = field(default_factory=dict)
    held: Mapping[str, datetime] = field(default_factory=dict)
    blocked_keys: set[str] = field(default_factory=set)
    has_suspects: bool = False
    """Whether notifications wait to be attempted alone."""
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
        """The channel's settings with decrypted secrets; Held if the secrets cannot be read."""
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
        """Apply breakers changed by this node's results; returns whether one started or stopped blocking."""
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
        """When the next held notification may continue: at its breaker's probe or the end of a short hold."""
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

    def warn_of_clamped(self, log: ViewLogger, warned: set[tuple[str, int, str]]) -> None:
        """Log once which invalid stored settings were replaced by defaults."""
        for channel in self.directory.channels.values():
            for name in _fixed(channel.settings)[1]:
                if (channel.name, channel.version, name) not in warned:
                    warned.add((channel.name, channel.version, name))
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


def load_view(conn: Connection, seen_at: float, *, now: datetime | None) -> DispatchView:
    """Load a new view."""
    view = DispatchView(
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
