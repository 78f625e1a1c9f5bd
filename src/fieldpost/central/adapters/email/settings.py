"""The settings of an email channel: which server, how to reach it, how long to wait, how often to try again."""

import ipaddress
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Literal, cast

from fieldpost.central.adapters.email.address import check_address, check_domain
from fieldpost.core.errors import InvalidInput
from fieldpost.core.retry import ATTEMPTS_MAX_DEFAULT, RETRY_DELAY_S_DEFAULT

TlsMode = Literal["none", "starttls", "implicit"]

DEADLINE_S = 15 * 60.0
"""The longest that one attempt may take in all; no single wait may be set longer."""

PORTS: dict[TlsMode, int] = {"none": 25, "starttls": 587, "implicit": 465}
"""The port that is taken when none is given."""

CONNECT_TIMEOUT_S = 30.0
COMMAND_TIMEOUT_S = 300.0
DATA_TIMEOUT_S = 600.0
MAX_RETRIES_MAX = 1000
RETRY_DELAY_S_MAX = 366 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What an attempt needs to know."""

    host: str
    port: int
    tls: TlsMode
    from_address: str
    connect_timeout_s: float
    """For the name, the connection and, with implicit TLS, the handshake."""
    command_timeout_s: float
    """For the banner and for the answer to each command."""
    data_timeout_s: float
    """For the answer to the final dot: giving up earlier means not knowing whether the mail was taken."""


def check_settings(settings: Mapping[str, object]) -> dict[str, object]:
    """The settings in full, defaults filled in, or InvalidInput naming the field and the rule it breaks."""
    known = (*(field.name for field in fields(Settings)), "max_retries", "retry_delay_s")
    for name in settings:
        if name not in known:
            shown = repr(name)[:64]
            raise InvalidInput(
                "settings.unknown",
                f"{shown} is no setting of an email channel; there are: {', '.join(known)}",
                field=shown.strip("'"),
            )
    return {
        **asdict(read_settings(settings)),
        "max_retries": _whole(settings, "max_retries", ATTEMPTS_MAX_DEFAULT, MAX_RETRIES_MAX),
        "retry_delay_s": _seconds(settings, "retry_delay_s", RETRY_DELAY_S_DEFAULT, RETRY_DELAY_S_MAX),
    }


def read_settings(stored: Mapping[str, object]) -> Settings:
    """What an attempt needs of stored settings, or InvalidInput.

    Settings that this version does not know are passed over: a newer node may have written them. The two of the retry
    policy are clamped where the policy is read, and never stop an attempt.
    """
    tls = _tls(stored)
    return Settings(
        host=_host(stored),
        port=_whole(stored, "port", PORTS[tls], 65535),
        tls=tls,
        from_address=_from_address(stored),
        connect_timeout_s=_seconds(stored, "connect_timeout_s", CONNECT_TIMEOUT_S, DEADLINE_S),
        command_timeout_s=_seconds(stored, "command_timeout_s", COMMAND_TIMEOUT_S, DEADLINE_S),
        data_timeout_s=_seconds(stored, "data_timeout_s", DATA_TIMEOUT_S, DEADLINE_S),
    )


def _tls(settings: Mapping[str, object]) -> TlsMode:
    # There is no default: neither sending in clear nor failing against a plain relay should come from an omission.
    mode = _text(settings, "tls")
    if mode not in PORTS:
        raise _invalid("tls", f"must be one of {', '.join(PORTS)}, not {mode[:64]!r}")
    return mode


def _host(settings: Mapping[str, object]) -> str:
    host = _text(settings, "host")
    if any(character.isspace() or not character.isprintable() for character in host):
        raise _invalid("host", "must not contain spaces or control characters")
    if "/" in host:
        raise _invalid("host", f"must be a name or an address, without scheme and path: {host[:64]!r}")
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    if ":" in host or host.startswith("["):
        raise _invalid("host", f"must be a name or an address alone, the port is a setting of its own: {host[:64]!r}")
    # An underscore is no part of a host name, yet container networks give such names.
    check_domain(host.replace("_", "-") if not host.startswith("_") else host, "host")
    return host.lower() if host.isascii() else check_domain(host, "host")


def _from_address(settings: Mapping[str, object]) -> str:
    address = check_address(_text(settings, "from_address"), "from_address")
    if not address.isascii():
        raise _invalid("from_address", "must be ASCII before the @, since every mail server must be able to use it")
    return address


def _whole(settings: Mapping[str, object], name: str, default: int, largest: int) -> int:
    value = settings.get(name, default)
    if type(value) is not int or not 1 <= value <= largest:
        raise _invalid(name, f"must be a whole number from 1 to {largest}, not {_shown(value)}")
    return value


def _seconds(settings: Mapping[str, object], name: str, default: float, largest: float) -> float:
    value = settings.get(name, default)
    if type(value) not in (int, float) or not math.isfinite(number := cast(float, value)) or not 0 < number <= largest:
        raise _invalid(name, f"must be a number of seconds above 0 and up to {largest:.0f}, not {_shown(value)}")
    return number


def _text(settings: Mapping[str, object], name: str) -> str:
    value = settings.get(name)
    if value is None or value == "":
        raise InvalidInput("settings.missing", f"{name} must be given", field=name)
    if type(value) is not str:
        raise _invalid(name, f"must be a str, not {type(value).__name__}")
    return value


def _shown(value: object) -> str:
    return repr(value) if type(value) in (int, float, bool) else f"{type(value).__name__} {str(value)[:32]!r}"


def _invalid(field: str, rule: str) -> InvalidInput:
    return InvalidInput("settings.invalid", f"{field} {rule}", field=field)
