"""What can be set for all that reaches out; apart from the clients, which a script that only notifies never loads."""

from dataclasses import dataclass

from fieldpost.core.errors import ConfigError, InvalidInput
from fieldpost.outbound.ranges import Allowed, parse_allowed


@dataclass(frozen=True, slots=True)
class OutboundOptions:
    """[outbound]"""

    allow: str = ""
    """Host names, addresses and networks, parted by spaces, that may be reached although their range is denied."""

    def __post_init__(self) -> None:
        self.allowed()

    def allowed(self) -> Allowed:
        if type(self.allow) is not str:
            raise ConfigError("settings.allow", "outbound.allow must be one text", field="outbound.allow")
        try:
            return parse_allowed(self.allow.split())
        except InvalidInput as error:
            raise ConfigError("settings.allow", f"outbound.allow: {error.message}", field="outbound.allow") from None
