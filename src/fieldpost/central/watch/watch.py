"""All that people can see."""

from dataclasses import dataclass
from datetime import timedelta

from fieldpost.central.store.engine import Store
from fieldpost.central.store.keyring import Keyring
from fieldpost.central.watch.health import Health
from fieldpost.central.watch.notifications import Notifications
from fieldpost.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """[watch]"""

    stuck_after_s: float = 600.0
    """Pending or retrying for longer than this counts as stuck; it is shown and never acted on."""


@dataclass(frozen=True, slots=True)
class Watch:
    notifications: Notifications
    health: Health

    @classmethod
    def over(
        cls, store: Store, clock: Clock, options: WatchOptions | None = None, keyring: Keyring | None = None
    ) -> "Watch":
        stuck_after = timedelta(seconds=(options or WatchOptions()).stuck_after_s)
        return cls(Notifications(store, clock, stuck_after), Health(store, clock, keyring))
