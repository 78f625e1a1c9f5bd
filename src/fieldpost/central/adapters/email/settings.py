"""Settings of an email channel: server, encryption, login and timeouts."""

import ipaddress
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Literal, cast

from fieldpost.central.adapters.email.address import check_address, check_domain
from fieldpost.core.errors import InvalidInput
from fieldpost.core.secret import Secret, check_secret
from fieldpost.outbound.tokens import Credential
from fieldpost.outbound.url import check_url, is_loopback

TlsMode = Literal["none", "starttls", "implicit"]
AuthMode = Literal["none", "basic", "oauth2"]
PipeliningMode = Literal["auto", "off"]

DEADLINE_S = 15 * 60.0
"""The time limit of an attempt; no timeout may be longer."""

PORTS: dict[TlsMode, int] = {"none": 25, "starttls": 587, "implicit": 465}
"""Default ports."""

SECRETS = frozenset({"password", "oauth_client_secret"})

# The settings that each authentication mode requires.
_NEEDED: dict[AuthMode, tuple[str, ...]] = {
    "none": (),
    "basic": ("username", "password"),
    "oauth2": ("username", "oauth_token_url", "oauth_client_id", "oauth_client_secret"),
}

CONNECT_TIMEOUT_S = 30.0
COMMAND_TIMEOUT_S = 300.0
DATA_TIMEOUT_S = 600.0
CONNECTIONS_DEFAULT = 10
CONNECTIONS_MAX = 1000
TEXT_CHARACTERS_MAX = 512


@dataclass(frozen=True, slots=True)
class EmailSettings:
    """The settings used by an attempt."""

    host: str
    port: int
    tls: TlsMode
    from_address: str
    connect_timeout_s: float
    """For name resolution, connection and, with implicit TLS, the handshake."""
    command_timeout_s: float
    """For the banner and the reply to each command."""
    data_timeout_s: float
    """For the reply to the final dot; after a timeout the delivery is uncertain."""
    max_connections: int
    """Open connections per node to this server with this user name."""
    pipelining: PipeliningMode = "auto"
    auth: AuthMode = "none"
    username: str | None = None
    password: Secret | None = None
    oauth_token_url: str | None = None
    oauth_client_id: str | None = None
    oauth_client_secret: Secret | None = None
    oauth_scope: str | None = None

    @property
    def server(self) -> tuple[str, int, str | None]:
        """The key under which connections are counted."""
        return self.host, self.port, self.username

    @property
    def login(self) -> tuple[object, ...]:
        """A connection may be reused if these are equal."""
        return (self.server, self.tls, self.auth, self.password, self.credential)

    @property
    def credential(self) -> Credential | None:
        """The OAuth2 client credentials, with auth oauth2."""
        if self.auth != "oauth2":
            return None
        # Checked settings have all of these; the defaults are for the type checker.
        secret = self.oauth_client_secret or Secret("")
        return Credential(self.oauth_token_url or "", self.oauth_client_id or "", secret, self.oauth_scope or "")


def check_settings(settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings with defaults filled in, or raise InvalidInput with the field and the rule."""
    known = [field.name for field in fields(EmailSettings)]
    for name in settings:
        if name not in known:
            shown = repr(name)[:64]
            raise InvalidInput(
                "settings.unknown",
                f"unknown setting {shown}; an email channel has: {', '.join(known)}",
                field=shown.strip("'"),
            )
    read = asdict(read_settings(settings))
    return {name: value for name, value in read.items() if value is not None}


def warnings(settings: Mapping[str, object]) -> list[str]:
    """Warnings about valid settings that are probably a mistake."""
    username, sender = settings.get("username"), settings.get("from_address")
    if settings.get("auth", "none") == "none" or not isinstance(username, str) or not isinstance(sender, str):
        return []
    if "@" not in username or username.casefold() == sender.casefold():
        return []
    return [f"from_address is {sender}, but username is {username}: many servers reject a sender other than the user"]


def read_settings(stored: Mapping[str, object]) -> EmailSettings:
    """Read stored settings for an attempt, or raise InvalidInput.

    Unknown settings are ignored, since a newer node may have written them.
    """
    tls = _tls(stored)
    host = _host(stored)
    auth = _auth(stored, tls, host)
    return EmailSettings(
        host=host,
        port=_whole(stored, "port", PORTS[tls], 65535),
        tls=tls,
        from_address=_from_address(stored),
        connect_timeout_s=_seconds(stored, "connect_timeout_s", CONNECT_TIMEOUT_S, DEADLINE_S),
        command_timeout_s=_seconds(stored, "command_timeout_s", COMMAND_TIMEOUT_S, DEADLINE_S),
        data_timeout_s=_seconds(stored, "data_timeout_s", DATA_TIMEOUT_S, DEADLINE_S),
        max_connections=_whole(stored, "max_connections", CONNECTIONS_DEFAULT, CONNECTIONS_MAX),
        pipelining=_pipelining(stored),
        auth=auth,
        username=_words(stored, "username"),
        password=_secret(stored, "password"),
        oauth_token_url=_token_url(stored),
        oauth_client_id=_words(stored, "oauth_client_id"),
        oauth_client_secret=_secret(stored, "oauth_client_secret"),
        oauth_scope=_words(stored, "oauth_scope", may_have_spaces=True),
    )


def _tls(settings: Mapping[str, object]) -> TlsMode:
    # No default: an omission should neither send in clear text nor fail against a plain relay.
    mode = _text(settings, "tls")
    if mode not in PORTS:
        raise _invalid("tls", f"must be one of {', '.join(PORTS)}, not {mode[:64]!r}")
    return mode


def _auth(settings: Mapping[str, object], tls: TlsMode, host: str) -> AuthMode:
    mode = _text(settings, "auth") if "auth" in settings else "none"
    if mode not in _NEEDED:
        raise _invalid("auth", f"must be one of {', '.join(_NEEDED)}, not {mode[:64]!r}")
    for name in _NEEDED[mode]:
        if not settings.get(name):
            raise InvalidInput("settings.missing", f"{name} is required if auth is {mode}", field=name)
    if mode != "none" and tls == "none" and not is_loopback(host):
        raise _invalid(
            "auth", "must be none if tls is none: credentials would be sent in clear text to another machine"
        )
    return mode


def _pipelining(settings: Mapping[str, object]) -> PipeliningMode:
    match mode := _text(settings, "pipelining") if "pipelining" in settings else "auto":
        case "auto" | "off":
            return mode
        case _:
            raise _invalid("pipelining", f"must be auto or off, not {mode[:64]!r}")


def _words(settings: Mapping[str, object], name: str, *, may_have_spaces: bool = False) -> str | None:
    """Text for a login dialogue, in which control characters separate fields."""
    if settings.get(name) is None:
        return None
    value = _text(settings, name)
    if len(value) > TEXT_CHARACTERS_MAX:
        raise _invalid(name, f"must have at most {TEXT_CHARACTERS_MAX} characters")
    if not value.isprintable() or (" " in value and not may_have_spaces):
        raise _invalid(name, f"must not contain {'' if may_have_spaces else 'spaces or '}control characters")
    return value


def _secret(settings: Mapping[str, object], name: str) -> Secret | None:
    value = settings.get(name)
    return value if value is None or isinstance(value, Secret) else check_secret(value, name)


def _token_url(settings: Mapping[str, object]) -> str | None:
    value = settings.get("oauth_token_url")
    return None if value is None else str(check_url(value, "admin", "oauth_token_url"))


def _host(settings: Mapping[str, object]) -> str:
    host = _text(settings, "host")
    if any(character.isspace() or not character.isprintable() for character in host):
        raise _invalid("host", "must not contain spaces or control characters")
    if "/" in host:
        raise _invalid("host", f"must be a host name or IP address without scheme and path: {host[:64]!r}")
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    if ":" in host or host.startswith("["):
        raise _invalid("host", f"must be a host name or IP address without a port (set port instead): {host[:64]!r}")
    # Underscores are not valid in host names, but container networks use them.
    check_domain(host.replace("_", "-") if not host.startswith("_") else host, "host")
    return host.lower() if host.isascii() else check_domain(host, "host")


def _from_address(settings: Mapping[str, object]) -> str:
    address = check_address(_text(settings, "from_address"), "from_address")
    if not address.isascii():
        raise _invalid("from_address", "must be ASCII before the @, so that every mail server can use it")
    return address


def _whole(settings: Mapping[str, object], name: str, default: int, largest: int) -> int:
    value = settings.get(name, default)
    if type(value) is not int or not 1 <= value <= largest:
        raise _invalid(name, f"must be a whole number between 1 and {largest}, got {_shown(value)}")
    return value


def _seconds(settings: Mapping[str, object], name: str, default: float, largest: float) -> float:
    value = settings.get(name, default)
    if type(value) not in (int, float) or not math.isfinite(number := cast(float, value)) or not 0 < number <= largest:
        raise _invalid(name, f"must be more than 0 and at most {largest:.0f} seconds, got {_shown(value)}")
    return number


def _text(settings: Mapping[str, object], name: str) -> str:
    value = settings.get(name)
    if value is None or value == "":
        raise InvalidInput("settings.missing", f"{name} is required", field=name)
    if type(value) is not str:
        raise _invalid(name, f"must be a str, not {type(value).__name__}")
    return value


def _shown(value: object) -> str:
    return repr(value) if type(value) in (int, float, bool) else f"{type(value).__name__} {str(value)[:32]!r}"


def _invalid(field: str, rule: str) -> InvalidInput:
    return InvalidInput("settings.invalid", f"{field} {rule}", field=field)
