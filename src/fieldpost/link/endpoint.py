"""The addresses of central and the token of a sender."""

import ssl
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from fieldpost.core.errors import ConfigError, Denied

DATA_PATH = "/link/v1/data"
CONTROL_PATH = "/link/v1/control"
SUBMIT_PATH = "/link/v1/submit"
STATUS_PATH = "/link/v1/status/"
URLS_MAX = 16


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Central's address and the sender's token."""

    url: str
    """An http or https URL without a trailing slash; its path is a prefix of all paths."""
    token: str = field(repr=False)
    ca_file: Path | None = None
    """The certificate authority of central, if it is not a public one."""
    more_urls: tuple[str, ...] = ()
    """Further addresses of the same central, tried if the first does not answer."""
    allow_plain: bool = False
    """Whether the token may be sent over plain HTTP to another machine."""

    def each(self) -> list["Endpoint"]:
        """One endpoint per address, in the given order."""
        return [replace(self, url=url, more_urls=()) for url in (self.url, *self.more_urls)]

    def refuse_plain(self) -> None:
        """Raise ConfigError if the token would be sent in clear text to another machine."""
        for url in () if self.allow_plain else (self.url, *self.more_urls):
            if is_plain(url):
                raise ConfigError(
                    "central.plain",
                    f"{url} is plain HTTP: anybody on the way to central could read the token",
                    hint="use https://; in a network that you trust, set allow_plain = true under [central] in"
                    " site.toml, or FIELDPOST_ALLOW_PLAIN=true for commands",
                )

    @property
    def authorization(self) -> str:
        self.refuse_plain()
        return f"Bearer {self.token}"

    def at(self, path: str) -> str:
        return self.url + path

    def websocket_at(self, path: str) -> str:
        return "ws" + self.url.removeprefix("http") + path

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context of an https connection; None for http."""
        if not self.url.startswith("https:"):
            return None
        try:
            return ssl.create_default_context(cafile=str(self.ca_file) if self.ca_file else None)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                "central.ca_file", f"{self.ca_file} does not contain a usable certificate: {error}"
            ) from None


def is_plain(url: str) -> bool:
    """Whether requests to this address leave the machine unencrypted."""
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    if parts.scheme != "http" or host == "localhost" or host.endswith(".localhost"):
        return False
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return True


def denied(status: int) -> Denied:
    """The error when central rejects the token, or a proxy on the path rejects the request."""
    if status == 403:
        return Denied(
            "link.denied",
            "a proxy or firewall on the path to central rejects this sender (HTTP 403)",
            hint="central itself never answers 403 here; check the proxies and firewalls in between",
        )
    return Denied(
        "link.denied",
        f"central rejects the token of this sender (HTTP {status})",
        hint="it may be revoked or replaced; issue a new one at central: fieldpost sites rotate-token NAME",
    )


def check_central_urls(urls: object) -> tuple[str, ...]:
    """Check and normalize several addresses of one central, or raise ConfigError."""
    if not isinstance(urls, list) or not 1 <= len(urls) <= URLS_MAX:
        raise ConfigError("central.url", f"central's urls must be a list of 1 to {URLS_MAX} addresses")
    checked = tuple(check_central_url(url) for url in urls)
    if len(set(checked)) != len(checked):
        raise ConfigError("central.url", "central's urls contain an address twice")
    return checked


def check_central_url(text: object) -> str:
    """Check and normalize central's address, or raise ConfigError."""
    if not isinstance(text, str):
        raise _bad_url(f"must be a string, not {type(text).__name__}")
    if not text.isprintable() or " " in text:
        raise _bad_url("must not contain spaces or control characters")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise _bad_url(f"is not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _bad_url(f"must be http://host or https://host, got {text[:100]!r}")
    if port == 0:
        raise _bad_url("must not have port 0")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise _bad_url("must not contain a user, a query or a fragment")
    return text.rstrip("/")


def _bad_url(what: str) -> ConfigError:
    return ConfigError("central.url", f"central's url {what}", hint="for example https://fieldpost.example.org")
