"""Settings of the dispatcher and the rules between them."""

from dataclasses import dataclass
from datetime import timedelta

from fieldpost.core.delivery.breaker import BreakerPolicy
from fieldpost.core.delivery.routing import PathDefaults
from fieldpost.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class DispatchOptions:
    """[dispatch]"""

    interval_s: float = 10.0
    """Interval between sweeps when nothing wakes the dispatcher."""
    batch_size: int = 100
    """Maximum number of notifications per claim."""
    slots: int = 64
    """How many deliveries to lists a node runs at once."""
    slots_per_key: int = 8
    """The share of a list or subscription: it may use more only while nothing else is due. A subscription has less
    while many of them have due notifications and half of the slots are in use."""
    long_s: float = 5.0
    """An attempt that takes longer frees its slot, up to `slots_per_key` of a list or subscription; it gets no more
    than its share meanwhile."""
    lease_s: float = 90.0
    """How long a claim is valid without renewal; then other nodes take over the notifications of a dead node."""
    renew_s: float = 30.0
    """Interval between renewals of claims; at most a third of the lease."""
    grace_s: float = 20.0
    """How long a stopping node waits for its deliveries before it releases them."""
    refresh_s: float = 1.0
    """Maximum age of the lists, channels and breakers that a sweep uses."""
    release_batch: int = 1000
    """How many held notifications each sweep releases after their breaker has closed."""
    hold_max_s: float = 5 * 24 * 3600.0
    """How long a notification may be held behind a breaker, from the start of its cycle, before it is parked."""
    breaker_failures_max: int = 5
    """Number of consecutive failures of a channel that opens its breaker."""
    breaker_break_s: float = 60.0
    """How long a breaker stays open before a probe."""
    breaker_lapse_s: float = 1800.0
    """Failures of a channel are forgotten after this time without another failure."""
    breaker_hold_s: float = 10.0
    """How long a notification waits after a failure of its channel that did not open the breaker."""

    def __post_init__(self) -> None:
        for name in ("interval_s", "batch_size", "slots", "slots_per_key", "long_s", "lease_s", "renew_s", "refresh_s"):
            if not getattr(self, name) > 0:
                raise ConfigError("settings.range", f"dispatch.{name} must be greater than 0", field=f"dispatch.{name}")
        if self.lease_s < 3 * self.renew_s:
            raise ConfigError(
                "settings.lease",
                f"dispatch.lease_s ({self.lease_s}) must be at least three times dispatch.renew_s ({self.renew_s})",
                field="dispatch.lease_s",
            )

    @property
    def path_defaults(self) -> PathDefaults:
        breaker = BreakerPolicy(
            self.breaker_failures_max, self.breaker_break_s, self.breaker_lapse_s, self.breaker_hold_s
        )
        return PathDefaults(channel_breaker=breaker, hold_max=self.hold_max)

    @property
    def hold_max(self) -> timedelta:
        return timedelta(seconds=self.hold_max_s)
