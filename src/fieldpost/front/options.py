"""What the front allows a caller, and for how long; and how it is reached."""

from dataclasses import dataclass, fields
from ipaddress import IPv4Network, IPv6Network, ip_network
from urllib.parse import urlsplit

from fieldpost.core.errors import ConfigError

ProxyNetwork = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class FrontOptions:
    """[front]"""

    connections_max: int = 4000
    """How many connections may be open at once; further ones are turned away with 503."""
    connections_per_site: int = 8
    """How many of them one site's link may use; further ones are turned away with 429."""
    header_s: float = 10.0
    """How long a request's head may take."""
    body_grace_s: float = 30.0
    """How long a body or a frame may take beside the time that its bytes need at 500 a second."""
    items_per_s: float = 50_000.0
    """How many items a site may submit for long; what is beyond is put off, and the site keeps it. It is there for
    floods: what a site that drains its backlog may send is said by its credits, and those by what the store takes."""
    bytes_per_s: float = 64 * 1024 * 1024.0
    """The same in bytes."""
    burst_s: float = 10.0
    """How many seconds' worth of items and bytes may come at once."""
    tls_cert: str = ""
    """The file with the certificate and its chain, in PEM; with it central serves HTTPS."""
    tls_key: str = ""
    """The file with the certificate's private key, unless it stands in the same file."""
    trusted_proxies: str = ""
    """Addresses and networks, parted by spaces, whose X-Forwarded-For and X-Forwarded-Proto are believed."""
    public_url: str = ""
    """Where people reach the console, e.g. https://fieldpost.example.org; for links that central itself makes."""
    plain_login: bool = False
    """Take passwords over plain HTTP from other machines too. Everybody on the way can read them then."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, int | float) and not isinstance(value, bool) and not value > 0:
                raise ConfigError("settings.range", f"front.{one.name} must be above 0", field=f"front.{one.name}")
        if self.tls_key and not self.tls_cert:
            raise ConfigError("settings.tls", "front.tls_key needs front.tls_cert beside it", field="front.tls_key")
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
                "front.public_url must be http:// or https:// and a host, and nothing behind it",
                field="front.public_url",
            )
