"""Behind a proxy: who really calls, and over what, as far as the proxy may be believed.

Only a peer that the settings name as a proxy is believed, and of the addresses it passes on only the last that is no
trusted proxy itself: whatever stands before that was written by the caller. `X-Forwarded-Host` and `Forwarded` are read
from nobody; central makes no link from a host that a request names.
"""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from fieldpost.front.options import ProxyNetwork


class Proxies:
    """Tells the layers below who calls."""

    def __init__(self, app: ASGIApp, trusted: Sequence[ProxyNetwork]) -> None:
        self._app = app
        self._trusted = trusted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            scope = self._seen_through(scope)
        await self._app(scope, receive, send)

    def _seen_through(self, scope: Scope) -> Scope:
        client = scope.get("client")
        if client is None or not is_within(client[0], self._trusted):
            return scope
        heads: list[tuple[bytes, bytes]] = scope["headers"]
        address = caller(_parts(heads, b"x-forwarded-for"), client[0], self._trusted)
        seen = {**scope, "client": (address, 0)}
        protocol = _parts(heads, b"x-forwarded-proto")
        if protocol and protocol[-1].lower() in ("http", "https"):
            is_tls = protocol[-1].lower() == "https"
            plain, safe = ("ws", "wss") if scope["type"] == "websocket" else ("http", "https")
            seen["scheme"] = safe if is_tls else plain
        return seen


def caller(passed_on: Sequence[str], peer: str, trusted: Sequence[ProxyNetwork]) -> str:
    """The address that a chain of trusted proxies vouches for: the last one that is none of them."""
    address = peer
    for text in reversed(passed_on):
        if not is_within(address, trusted):
            break
        try:
            address = str(ip_address(text.strip("[]")))
        except ValueError:
            break
    return address


def is_within(address: str, networks: Iterable[ProxyNetwork]) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return any((mapped or found) in network for network in networks)


def is_loopback(address: str) -> bool:
    """Whether the caller is this machine."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


def _parts(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    """The header's values in order, however many lines they came in."""
    text = ",".join(value.decode("latin-1") for key, value in headers if key == name)
    return [part.strip() for part in text.split(",") if part.strip()]
