"""Settings of outbound connections; separate from the clients, so that scripts that only notify do not load those."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from fieldpost.core.errors import ConfigError, InvalidInput
from fieldpost.core.secret import Secret
from fieldpost.outbound.ranges import Allowed, parse_allowed

LOOKUP_TIMEOUT_S_MAX = 300


@dataclass(frozen=True, slots=True)
class ProxyServer:
    """Address and credentials of the proxy."""

    host: str
    port: int
    user: str
    password: Secret


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
    proxy: str = ""
    """The HTTP proxy for all HTTP requests to configured URLs, as `http://HOST:PORT`; empty for none. It resolves host
    names, and only hosts written as addresses are checked. Variables such as `https_proxy` are not read."""
    proxy_user: str = ""
    """The user name at the proxy; empty if it needs none."""
    proxy_password_file: str = ""
    """The file with the password at the proxy."""

    def __post_init__(self) -> None:
        self.allowed()
        for name in ("connections", "connections_per_host"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise _invalid(name, f"must be an integer of at least 1, got {value!r}")
        value = self.lookup_timeout_s
        if type(value) not in (int, float) or not 0 < value <= LOOKUP_TIMEOUT_S_MAX:
            raise _invalid("lookup_timeout_s", f"must be more than 0 and at most {LOOKUP_TIMEOUT_S_MAX}, got {value!r}")
        self._check_proxy()

    def proxy_server(self) -> ProxyServer | None:
        """The proxy with its password, read from its file; None without a proxy."""
        if not self.proxy:
            return None
        parts = urlsplit(self.proxy)
        assert parts.hostname is not None, "the URL was checked"
        assert parts.port is not None, "the URL was checked"
        return ProxyServer(parts.hostname, parts.port, self.proxy_user, self._proxy_password())

    def _proxy_password(self) -> Secret:
        if not self.proxy_password_file:
            return Secret("")
        try:
            text = Path(self.proxy_password_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise _wrong_proxy("proxy_password_file", f"cannot be read: {reason}") from None
        return Secret(text)

    def _check_proxy(self) -> None:
        for name in ("proxy_user", "proxy_password_file"):
            if getattr(self, name) and not self.proxy:
                raise _wrong_proxy(name, "needs outbound.proxy")
        if self.proxy_password_file and not self.proxy_user:
            raise _wrong_proxy("proxy_password_file", "needs outbound.proxy_user")
        if ":" in self.proxy_user or not self.proxy_user.isprintable():
            raise _wrong_proxy("proxy_user", "must not contain a colon or control characters")
        if self.proxy and (rule := _proxy_fault(self.proxy)) is not None:
            raise _wrong_proxy("proxy", rule)

    def allowed(self) -> Allowed:
        if type(self.allow) is not str:
            raise ConfigError("settings.allow", "outbound.allow must be a string", field="outbound.allow")
        try:
            return parse_allowed(self.allow.split())
        except InvalidInput as error:
            raise ConfigError("settings.allow", f"outbound.allow: {error.message}", field="outbound.allow") from None


def _proxy_fault(url: str) -> str | None:
    """The rule that the URL of a proxy breaks. The rule never quotes it: a URL with a password is one of the faults."""
    shape = "must be http://HOST:PORT"
    if not url.isascii() or not url.isprintable() or " " in url:
        return shape
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return shape
    if "@" in parts.netloc:
        return "must not contain a user name or password; use outbound.proxy_user and outbound.proxy_password_file"
    if parts.scheme != "http" or not parts.hostname or not port or parts.path not in ("", "/"):
        return shape
    return shape if parts.query or parts.fragment else None


def _wrong_proxy(name: str, rule: str) -> ConfigError:
    return ConfigError("settings.proxy", f"outbound.{name} {rule}", field=f"outbound.{name}")


def _invalid(name: str, rule: str) -> ConfigError:
    return ConfigError("settings.range", f"outbound.{name} {rule}", field=f"outbound.{name}")
