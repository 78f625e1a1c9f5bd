"""Settings of outbound connections; separate from the clients, so that scripts that only notify do not load those."""

from dataclasses import dataclass

from fieldpost.core.errors import ConfigError, InvalidInput
from fieldpost.outbound.ranges import Allowed, parse_allowed


@dataclass(frozen=True, slots=True)
class OutboundOptions:
    """[outbound]"""

    allow: str = ""
    """Host names, addresses and networks, separated by spaces, that may be contacted although their range is denied."""

    def __post_init__(self) -> None:
        self.allowed()

    def allowed(self) -> Allowed:
        if type(self.allow) is not str:
            raise ConfigError("settings.allow", "outbound.allow must be a string", field="outbound.allow")
        try:
            return parse_allowed(self.allow.split())
        except InvalidInput as error:
            raise ConfigError("settings.allow", f"outbound.allow: {error.message}", field="outbound.allow") from None
