"""Login rules: user names, passwords, delays after failed logins, session expiry.

The delay grows with each failure and is forgotten after an hour without one. Failures are counted per account, known
or not, and network, and per network alone: the first limits guessing one user's password, the second guessing
everybody's. Anybody who knows a user's name could otherwise lock them out; so failures from other networks count only
towards a high ceiling, a browser in which the user has logged in before has its own count, and no account is locked
permanently. A try during a delay counts against its network.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address

from fieldpost.core.errors import InvalidInput

USER_NAME_MAX = 64
PASSWORD_LENGTH_MIN = 12
PASSWORD_BYTES_MAX = 1024
"""Longer passwords are rejected before hashing."""
DISTINCT_MIN = 5
NETWORK_BITS = 64
"""One customer usually has a whole IPv6 network of this size."""

# ASCII without capitals, so that no two names look alike.
_USER_NAME = re.compile(rf"[a-z0-9][a-z0-9._@+-]{{0,{USER_NAME_MAX - 1}}}")


@dataclass(frozen=True, slots=True)
class Patience:
    """The number of failures without delay, and the delay after them, which doubles each time up to a maximum."""

    free: int
    first: timedelta
    longest: timedelta
    forgotten_after: timedelta = timedelta(hours=1)


WITH_ACCOUNT = Patience(free=4, first=timedelta(seconds=1), longest=timedelta(minutes=5))
"""With an account, from one network or one known browser."""
WITH_EVERYBODY = Patience(free=300, first=timedelta(seconds=1), longest=timedelta(minutes=5))
"""With an account, from all networks together."""
# Many people may share one address, behind a gateway.
WITH_NETWORK = Patience(free=20, first=timedelta(seconds=1), longest=timedelta(minutes=15))


def network_of(address: str) -> str:
    """The network that a client address stands for: the address itself, or the /64 of an IPv6 address."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return f"{IPv6Address(int(found) >> NETWORK_BITS << NETWORK_BITS)}/{NETWORK_BITS}"
    return str(found.ipv4_mapped if isinstance(found, IPv6Address) else found)


@dataclass(frozen=True, slots=True)
class Tally:
    """Failed logins of one account or address; logins are refused until `free_at`."""

    failures: int
    failed_at: datetime
    free_at: datetime

    def wait(self, now: datetime) -> timedelta:
        return max(timedelta(0), self.free_at - now)


def charged(tally: Tally | None, patience: Patience, now: datetime) -> Tally:
    """The tally with one more failure."""
    is_forgotten = tally is None or now - tally.failed_at >= patience.forgotten_after
    failures = 1 if tally is None or is_forgotten else tally.failures + 1
    return Tally(failures, now, now + delay(failures, patience))


def given_back(tally: Tally, now: datetime) -> Tally:
    """The tally without its last failure, because the login succeeded after all."""
    return Tally(max(0, tally.failures - 1), tally.failed_at, min(tally.free_at, now))


def delay(failures: int, patience: Patience) -> timedelta:
    """The delay after this number of consecutive failures."""
    if failures <= patience.free:
        return timedelta(0)
    doublings = min(failures - patience.free - 1, 30)
    return min(patience.longest, patience.first * (1 << doublings))


def has_ended(now: datetime, last_used_at: datetime, expires_at: datetime | None, idle: timedelta) -> bool:
    """Whether a session has ended: idle for too long, or expired."""
    return now - last_used_at >= idle or (expires_at is not None and expires_at <= now)


def is_user_name(text: str) -> bool:
    return _USER_NAME.fullmatch(text) is not None


def check_user_name(value: object) -> str:
    if type(value) is not str or not is_user_name(value):
        raise InvalidInput(
            "user.name",
            f"name must have 1 to {USER_NAME_MAX} lower-case letters, digits or . _ @ + -, the first a letter or digit",
            field="name",
        )
    return value


def check_password(password: str, name: str) -> str:
    """Return a new password, or raise InvalidInput with the rule that it breaks. Length matters most."""
    size = len(password.encode("utf-8", "replace"))
    if len(password) < PASSWORD_LENGTH_MIN:
        raise _refused(f"must have at least {PASSWORD_LENGTH_MIN} characters; several words are easy to remember")
    if size > PASSWORD_BYTES_MAX:
        raise _refused(f"must have at most {PASSWORD_BYTES_MAX} bytes")
    if len(set(password)) < DISTINCT_MIN:
        raise _refused(f"must have at least {DISTINCT_MIN} different characters")
    if name in password.casefold() and len(password) < len(name) + PASSWORD_LENGTH_MIN:
        raise _refused("must not consist mostly of the user name")
    if any("\ud800" <= character <= "\udfff" for character in password):
        raise _refused("must not contain lone surrogates")
    return password


def _refused(rule: str) -> InvalidInput:
    return InvalidInput("password.rule", f"password {rule}", field="password")
