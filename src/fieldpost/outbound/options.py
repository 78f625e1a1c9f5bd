"""Settings of outbound connections; separate from the clients, so that scripts that only notify do not load those."""

from dataclasses import dataclass

from fieldpost.core.errors import ConfigError, InvalidInput
from fieldpost.outbound.ranges import Allowed, parse_allowed

LOOKUP_TIMEOUT_S_MAX = 300


@dataclass(frozen=True, slots=True)
class OutboundOptions:
    """[outbound]"""

    allow: str = ""
    """Host names, addresses and networks, separated by spaces, that may be contacted although their range is denied."""
    connections: int = 512
    """Maximum number of HTTP requests in progress; further ones wait for a connection within their timeout."""
    connections_per_host: int = 32
    """Maximum number of HTTP requests in progress to one host, so that a slow one does not take all connections."""
    lookup_timeout_s: float = 15.0
    """How long to wait for the name server. The lookup of a name fails after this time; other names are unaffected."""

    def __post_init__(self) -> None:
        self.allowed()
        for name in ("connections", "connections_per_host"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise _invalid(name, f"must be an integer of at least 1, got {value!r}")
        value = self.lookup_timeout_s
        if type(value) not in (int, float) or not 0 < value <= LOOKUP_TIMEOUT_S_MAX:
            raise _invalid("lookup_timeout_s", f"must be more than 0 and at most {LOOKUP_TIMEOUT_S_MAX}, got {value!r}")

    def allowed(self) -> Allowed:
        if type(self.allow) is not str:
            raise ConfigError("settings.allow", "outbound.allow must be a string", field="outbound.allow")
        try:
            return parse_allowed(self.allow.split())
        except InvalidInput as error:
            raise ConfigError("settings.allow", f"outbound.allow: {error.message}", field="outbound.allow") from None


def _invalid(name: str, rule: str) -> ConfigError:
    return ConfigError("settings.range", f"outbound.{name} {rule}", field=f"outbound.{name}")
