"""All that adapters reach the world with, made once for a process and handed to those who ask for it."""

import ssl
from dataclasses import dataclass

from fieldpost.clock import Clock
from fieldpost.core.errors import ConfigError, InvalidInput
from fieldpost.outbound.client import HttpClient
from fieldpost.outbound.guard import Guard, Resolve, resolve_by_system
from fieldpost.outbound.ranges import Allowed, parse_allowed
from fieldpost.outbound.tokens import Tokens


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


class Outbound:
    """Guards, HTTP clients and tokens. An adapter that takes `outbound` as a keyword is handed this."""

    def __init__(
        self,
        options: OutboundOptions | None = None,
        *,
        resolve: Resolve = resolve_by_system,
        tls_context: ssl.SSLContext | None = None,
        clock: Clock | None = None,
    ) -> None:
        allowed = (options or OutboundOptions()).allowed()
        self.strict = Guard("strict", allowed, resolve)
        """For what subscribers type."""
        self.admin = Guard("admin", allowed, resolve)
        """For what an administrator or a site's own file defines."""
        self.strict_http = HttpClient(self.strict, tls_context)
        self.admin_http = HttpClient(self.admin, tls_context)
        self.tokens = Tokens(self.admin_http, clock)

    async def close(self) -> None:
        await self.tokens.close()
        await self.strict_http.close()
        await self.admin_http.close()
