"""Settings of the relay."""

from dataclasses import dataclass, field
from pathlib import Path

from fieldpost.core.delivery import retry
from fieldpost.core.delivery.retry import RetryPolicy
from fieldpost.core.errors import ConfigError, InvalidInput, out_of_range
from fieldpost.core.events.event import EVENTS_MAX
from fieldpost.link.endpoint import Endpoint, check_central_url

DAYS_MAX = 36525
LEASE_S_MIN = 1.0
IN_FLIGHT_MAX = 16


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """[relay]"""

    database: str = field(default="", repr=False)
    """URL of the application's database: `postgresql://user@host/database`, `mariadb://user@host/database` or
    `sqlite:////absolute/file`."""
    url: str = ""
    """Address of central, such as https://fieldpost.example.org."""
    token: str = field(default="", repr=False)
    """The token of role publisher; better give token_file."""
    token_file: str = ""
    """File with the token. It is read again when central rejects the token, so a rotation needs no restart."""
    ca_file: str = ""
    """Certificate authority of central, if it is not a public one."""
    allow_plain: bool = False
    """Send the token over plain HTTP to another machine."""
    poll_s: float = 1.0
    """How often to look for new rows without a hint."""
    batch_size: int = 500
    """The most rows of one claim and one request."""
    in_flight_max: int = 2
    """How many batches are published at a time."""
    lease_s: float = 60.0
    """How long a claim lasts; another relay takes the rows of a dead one after this time."""
    timeout_s: float = 20.0
    """How long to wait for central's answer; at most half of the lease."""
    retry: str = "exponential:10s:0:2:1h"
    """When a row that was rejected or not answered is due again; 0 attempts mean no limit."""
    follow_s: float = 2.0
    """How often to query central for results."""
    overlap_s: float = 15.0
    """How far each query for results reaches back before the last one."""
    hint: bool = True
    """Listen for notifications of PostgreSQL about new rows; not possible behind a transaction pooler."""
    history: bool = True
    """Write `notification_history`."""
    tasks: bool = True
    """Write `background_tasks`."""
    health_log: bool = True
    """Write `system_health_logs`."""
    sent_days: float = 7.0
    """How long SENT rows are kept."""
    history_days: float = 365.0
    """How long rows of `notification_history` and `system_health_logs` are kept."""

    def __post_init__(self) -> None:
        for name in ("sent_days", "history_days"):
            if not 0 < getattr(self, name) <= DAYS_MAX:
                raise out_of_range(f"relay.{name}", "must be greater than 0 and at most a hundred years")
        for name in ("poll_s", "follow_s", "overlap_s"):
            if not 0 < getattr(self, name) <= 3600:
                raise out_of_range(f"relay.{name}", "must be greater than 0 and at most 3600")
        if not 1 <= self.batch_size <= EVENTS_MAX:
            raise out_of_range("relay.batch_size", f"must be between 1 and {EVENTS_MAX}")
        if not 1 <= self.in_flight_max <= IN_FLIGHT_MAX:
            raise out_of_range("relay.in_flight_max", f"must be between 1 and {IN_FLIGHT_MAX}")
        if not LEASE_S_MIN <= self.lease_s <= 3600:
            raise out_of_range("relay.lease_s", f"must be between {LEASE_S_MIN:g} and 3600")
        if not 0 < self.timeout_s <= self.lease_s / 2:
            raise out_of_range("relay.timeout_s", "must be greater than 0 and at most half of relay.lease_s")
        if self.token and self.token_file:
            raise ConfigError("settings.token", "give relay.token or relay.token_file, not both", field="relay.token")
        _ = self.retry_policy

    @property
    def retry_policy(self) -> RetryPolicy:
        try:
            return retry.parse(self.retry, allow_no_limit=True)
        except InvalidInput as error:
            raise ConfigError("settings.range", f"relay.{error.message}", field="relay.retry") from None

    def endpoint(self) -> Endpoint:
        """Central's address with the present token. Raises ConfigError if either is missing or wrong."""
        if not self.url:
            raise ConfigError("settings.missing", "relay.url is not set: the address of central", field="relay.url")
        endpoint = Endpoint(
            check_central_url(self.url),
            self._read_token(),
            Path(self.ca_file) if self.ca_file else None,
            allow_plain=self.allow_plain,
        )
        endpoint.refuse_plain()
        return endpoint

    def _read_token(self) -> str:
        if self.token:
            return self.token
        if not self.token_file:
            raise ConfigError(
                "settings.missing",
                "relay.token_file is not set: the file with a token of role publisher",
                hint="fieldpost tokens add NAME --role publisher",
                field="relay.token_file",
            )
        try:
            token = Path(self.token_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("settings.token_file", f"cannot read {self.token_file}: {error}") from None
        if not token or not token.isprintable() or " " in token:
            raise ConfigError("settings.token_file", f"{self.token_file} does not contain a token")
        return token
