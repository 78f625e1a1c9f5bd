"""The outbound clients of a process, shared by its adapters."""

import ssl

from fieldpost.clock import Clock
from fieldpost.outbound.client import HttpClient
from fieldpost.outbound.guard import AddressGuard, Resolve, resolve_by_system
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.tokens import OAuthTokens


class Outbound:
    """Guards, HTTP clients and tokens. Adapters with a keyword `outbound` receive it."""

    def __init__(
        self,
        options: OutboundOptions | None = None,
        *,
        resolve: Resolve = resolve_by_system,
        tls_context: ssl.SSLContext | None = None,
        clock: Clock | None = None,
    ) -> None:
        allowed = (options or OutboundOptions()).allowed()
        self.strict = AddressGuard("strict", allowed, resolve)
        """For hosts from subscribers."""
        self.admin = AddressGuard("admin", allowed, resolve)
        """For hosts from administrators or a site's files."""
        self.strict_http = HttpClient(self.strict, tls_context)
        self.admin_http = HttpClient(self.admin, tls_context)
        self.tokens = OAuthTokens(self.admin_http, clock)

    async def close(self) -> None:
        await self.tokens.close()
        await self.strict_http.close()
        await self.admin_http.close()
