"""Settings of webhooks and the rules between them."""

from dataclasses import dataclass

from fieldpost.core.delivery.breaker import BreakerPolicy
from fieldpost.core.errors import ConfigError, InvalidInput, out_of_range
from fieldpost.core.events.expiry import ScanTime, parse_scan_time

FAILURES_LIMIT = 20
SECONDS_MAX = 7 * 24 * 3600.0
DAYS_MAX = 36525


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookOptions:
    """[webhooks]"""

    slots: int = 200
    """How many deliveries to subscriptions a node runs at once."""
    host_max: int = 32
    """How many of them may go to one host, over all subscriptions."""
    allow_plain: bool = False
    """Accept receivers with plain http. Anybody on the network can then read bodies and credentials."""
    per_owner_max: int = 100
    """How many subscriptions of one owner its subscribers may have; administrators may add more."""
    require_rejection: bool = False
    """A receiver that waits for a test must also reject the test, with 400, 401 or 403, if it comes without credentials
    and with a wrong signature."""
    failures_max: int = 10
    """Number of consecutive failures of a subscription that blocks it, from 1 to 20."""
    break_s: float = 300.0
    """How long a subscription is blocked before one delivery probes it."""
    lapse_s: float = 600.0
    """A subscription that is not called for this time counts as healthy again; must exceed `break_s`."""
    disable_after_days: float = 7.0
    """A subscription that fails for this long without a success is disabled; notices warn at 50, 70 and 90 % of it."""
    expire_parked_at: str = "never"
    """When to delete old parked webhook notifications: HH:MM, a weekday, or a weekday and HH:MM (in UTC), or never."""
    expire_parked_after_days: float = 7.0
    """How long a webhook notification stays parked before the scan of `expire_parked_at` deletes it."""

    def __post_init__(self) -> None:
        for name in (
            "slots",
            "host_max",
            "per_owner_max",
            "break_s",
            "lapse_s",
            "disable_after_days",
            "expire_parked_after_days",
        ):
            if not getattr(self, name) > 0:
                raise out_of_range(f"webhooks.{name}", "must be greater than 0")
        for name in ("break_s", "lapse_s"):
            if getattr(self, name) > SECONDS_MAX:
                raise out_of_range(f"webhooks.{name}", f"must be at most {SECONDS_MAX:g}")
        for name in ("disable_after_days", "expire_parked_after_days"):
            if getattr(self, name) > DAYS_MAX:
                raise out_of_range(f"webhooks.{name}", "must be at most a hundred years")
        if not 1 <= self.failures_max <= FAILURES_LIMIT:
            raise out_of_range("webhooks.failures_max", f"must be from 1 to {FAILURES_LIMIT}")
        if self.lapse_s <= self.break_s:
            raise out_of_range("webhooks.lapse_s", f"must exceed webhooks.break_s ({self.break_s:g})")
        self.scan_time  # noqa: B018  raises if the text is invalid

    @property
    def breaker(self) -> BreakerPolicy:
        return BreakerPolicy(self.failures_max, self.break_s, self.lapse_s)

    @property
    def scan_time(self) -> ScanTime | None:
        """When expired notifications are deleted; None for never."""
        try:
            return parse_scan_time(self.expire_parked_at, "webhooks.expire_parked_at")
        except InvalidInput as error:
            raise ConfigError("settings.scan_time", error.message, field=error.field) from None
