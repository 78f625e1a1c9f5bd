"""Where a sender finds central, and what it shows there."""

import ssl
from dataclasses import dataclass, field, replace
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
    """Central's address as its senders use it, with the sender's token."""

    url: str
    """`http` or `https`, without a slash at the end; a path in it is a prefix of all ours."""
    token: str = field(repr=False)
    ca_file: Path | None = None
    """The authority that signed central's certificate, where it is an own one."""
    more_urls: tuple[str, ...] = ()
    """Further addresses of the same central, to be tried when the first does not answer."""

    def each(self) -> list["Endpoint"]:
        """The addresses one by one, in the order in which they were given."""
        return [replace(self, url=url, more_urls=()) for url in (self.url, *self.more_urls)]

    @property
    def authorization(self) -> str:
        return f"Bearer {self.token}"

    def at(self, path: str) -> str:
        return self.url + path

    def websocket_at(self, path: str) -> str:
        return "ws" + self.url.removeprefix("http") + path

    def tls(self) -> ssl.SSLContext | None:
        """What an https connection trusts; None for plain http."""
        if not self.url.startswith("https:"):
            return None
        try:
            return ssl.create_default_context(cafile=str(self.ca_file) if self.ca_file else None)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                "central.ca_file", f"the file {self.ca_file} holds no usable certificate: {error}"
            ) from None


def denied(status: int) -> Denied:
    """What a sender says when central does not take what it shows, or something on the way lets nobody through."""
    if status == 403:
        return Denied(
            "link.denied",
            "something on the way to central does not let this sender through (HTTP 403)",
            hint="central itself does not answer so: is there a proxy or a firewall in between?",
        )
    return Denied(
        "link.denied",
        f"central does not accept this sender's token (HTTP {status})",
        hint="was it revoked or replaced? At central: fieldpost sites rotate-token NAME",
    )


def check_central_urls(urls: object) -> tuple[str, ...]:
    """Several addresses of one central in the form an Endpoint keeps, or ConfigError saying what is wrong."""
    if not isinstance(urls, list) or not 1 <= len(urls) <= URLS_MAX:
        raise ConfigError("central.url", f"central's urls must be a list of 1 to {URLS_MAX} addresses")
    checked = tuple(check_central_url(url) for url in urls)
    if len(set(checked)) != len(checked):
        raise ConfigError("central.url", "central's urls name an address twice")
    return checked


def check_central_url(text: object) -> str:
    """The address in the form an Endpoint keeps, or ConfigError saying what is wrong with it."""
    if not isinstance(text, str):
        raise _bad_url(f"must be a text, not {type(text).__name__}")
    if not text.isprintable() or " " in text:
        raise _bad_url("must hold neither spaces nor control characters")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise _bad_url(f"is no URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _bad_url(f"must read http://host or https://host, not {text[:100]!r}")
    if port == 0:
        raise _bad_url("names port 0")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise _bad_url("must hold neither a user, a query nor a fragment")
    return text.rstrip("/")


def _bad_url(what: str) -> ConfigError:
    return ConfigError("central.url", f"central's url {what}", hint="for example https://fieldpost.example.org")
