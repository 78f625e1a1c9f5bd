"""Validation of configured URLs. The URL checked here is exactly the URL requested later."""

from ipaddress import ip_address

from yarl import URL

from fieldpost.core.errors import InvalidInput
from fieldpost.outbound.ranges import Mode

URL_CHARACTERS_MAX = 2048
_WEB_PORTS = (80, 443)


def check_url(value: object, mode: Mode, field: str = "url", *, is_plain_allowed: bool = False) -> URL:
    """Return the URL to request, or raise InvalidInput with the rule that it breaks. The guard checks its host later.

    In admin mode `http` is allowed only to loopback, since credentials are sent there, unless `is_plain_allowed`.
    """
    if type(value) is not str:
        raise _refused(field, f"must be a str, not {type(value).__name__}")
    if not 0 < len(value) <= URL_CHARACTERS_MAX:
        raise _refused(field, f"must have 1 to {URL_CHARACTERS_MAX} characters")
    # Parsers disagree on these: some drop them, so two parsers can see different hosts.
    if any(character.isspace() or not character.isprintable() or character == "\\" for character in value):
        raise _refused(field, "must not contain spaces, control characters or backslashes")
    try:
        url = URL(value)
        host, port = url.raw_host, url.port
    except ValueError:
        raise _refused(field, "must be a valid URL") from None
    if url.scheme not in ("http", "https"):
        raise _refused(field, "must begin with https:// or http://")
    if not host:
        raise _refused(field, "must name a host")
    if "@" in url.raw_authority:
        raise _refused(field, "must not contain a user name or password, which would be shown with it")
    if url.raw_fragment or value.endswith("#"):
        raise _refused(field, "must not have a fragment (#), which is never sent")
    if port is None or not 0 < port <= 65535:
        raise _refused(field, "must have a port from 1 to 65535")
    if mode == "strict" and port < 1024 and port not in _WEB_PORTS:
        raise _refused(field, "must not name a port under 1024 other than 80 and 443")
    if mode == "admin" and url.scheme == "http" and not is_plain_allowed and not is_loopback(host):
        raise _refused(field, "must begin with https:// unless its host is this machine")
    return url


def is_loopback(host: str) -> bool:
    """Whether the host, as written, is this machine."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _refused(field: str, rule: str) -> InvalidInput:
    return InvalidInput("url.invalid", f"{field} {rule}", field=field)
