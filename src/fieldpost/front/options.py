"""Options of the front: limits for callers, TLS, proxies and the public address."""

from dataclasses import dataclass, fields
from ipaddress import IPv4Network, IPv6Network, ip_network
from urllib.parse import urlsplit

from fieldpost.core.errors import ConfigError

ProxyNetwork = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class FrontOptions:
    """[front]"""

    connections_max: int = 4000
    """Maximum number of open connections, a quarter of them for sites only; further ones get 503."""
    connections_per_address: int = 32
    """Maximum number of connections from one address that have not authenticated; further ones get 503."""
    connections_per_network: int = 64
    """The same for one IPv6 network (/64). Trusted proxies are exempt from both."""
    connections_per_site: int = 8
    """Maximum number of link connections per site; further ones get 429."""
    header_s: float = 10.0
    """Deadline for a request head, and for a TLS handshake."""
    body_grace_s: float = 30.0
    """Deadline for a body or a frame, in addition to the time that its bytes take at 500 bytes per second. A client
    that reads an answer more slowly than that for this long is disconnected."""
    items_per_s: float = 50_000.0
    """Sustained rate of items per site; a site that exceeds it must wait and keeps its items. This limit is for floods:
    credits, which follow the speed of the store, regulate a site that drains its backlog."""
    bytes_per_s: float = 64 * 1024 * 1024.0
    """Sustained rate of bytes per site."""
    burst_s: float = 10.0
    """Burst size: the items and bytes of this many seconds may arrive at once."""
    receipts_per_s: float = 50.0
    """Sustained rate of receipts from one address, for channels whose providers report on deliveries."""
    tls_cert: str = ""
    """PEM file with the certificate and its chain. If set, central serves HTTPS."""
    tls_key: str = ""
    """PEM file with the private key, unless `tls_cert` contains it."""
    trusted_proxies: str = ""
    """Addresses and networks, separated by spaces, whose X-Forwarded-For and X-Forwarded-Proto are trusted."""
    public_url: str = ""
    """The address of the console, e.g. https://fieldpost.example.org; used in links that central creates."""
    plain_login: bool = False
    """Accept passwords over plain HTTP from other machines. Anyone on the network path can then read them."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, int | float) and not isinstance(value, bool) and not value > 0:
                raise ConfigError(
                    "settings.range", f"front.{one.name} must be above 0, got {value}", field=f"front.{one.name}"
                )
        if self.tls_key and not self.tls_cert:
            raise ConfigError("settings.tls", "front.tls_key requires front.tls_cert", field="front.tls_key")
        self.proxies()
        self._check_public_url()

    @property
    def has_tls(self) -> bool:
        return bool(self.tls_cert)

    def proxies(self) -> tuple[ProxyNetwork, ...]:
        """The networks of the trusted proxies."""
        try:
            return tuple(ip_network(text) for text in self.trusted_proxies.split())
        except ValueError as error:
            raise ConfigError(
                "settings.proxies", f"front.trusted_proxies: {error}", field="front.trusted_proxies"
            ) from None

    def _check_public_url(self) -> None:
        if not self.public_url:
            return
        try:
            url = urlsplit(self.public_url)
            is_good = url.scheme in ("http", "https") and bool(url.hostname) and url.path in ("", "/")
            is_good = is_good and not (url.query or url.fragment or url.username) and self.public_url.isprintable()
        except ValueError:
            is_good = False
        if not is_good:
            raise ConfigError(
                "settings.url",
                "front.public_url must be http:// or https:// and a host, without path or query",
                field="front.public_url",
            )
