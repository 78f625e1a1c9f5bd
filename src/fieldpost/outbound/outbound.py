"""The outbound clients of a process, shared by its adapters."""

import ssl

from fieldpost.clock import Clock
from fieldpost.outbound.client import HttpClient
from fieldpost.outbound.guard import AddressGuard, Resolve
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.resolver import SystemResolver
from fieldpost.outbound.tokens import OAuthTokens


class Outbound:
    """Guards, HTTP clients and tokens. Adapters with a keyword `outbound` receive it."""

    def __init__(
        self,
        options: OutboundOptions | None = None,
        *,
        resolve: Resolve | None = None,
        tls_context: ssl.SSLContext | None = None,
        clock: Clock | None = None,
    ) -> None:
        options = options or OutboundOptions()
        self.options = options
        allowed = options.allowed()
        resolver = resolve or SystemResolver(options.lookup_timeout_s, clock=clock)
        self.strict = AddressGuard("strict", allowed, resolver)
        """For hosts from subscribers."""
        self.admin = AddressGuard("admin", allowed, resolver)
        """For hosts from administrators or a site's files."""
        self.strict_http = HttpClient(self.strict, tls_context, options)
        self.admin_http = HttpClient(self.admin, tls_context, options)
        self.strict_tokens = OAuthTokens(self.strict_http, clock)
        """For subscriptions. Separate from the channels' tokens: a subscriber who knows a channel's credential must not
        get a token from an address that only the administrator may use."""
        self.admin_tokens = OAuthTokens(self.admin_http, clock)
        """For channels."""

    async def close(self) -> None:
        for part in (self.strict_tokens, self.admin_tokens, self.strict_http, self.admin_http):
            await part.close()
