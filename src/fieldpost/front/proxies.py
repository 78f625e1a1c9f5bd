"""The address and scheme of callers behind a trusted proxy.

Only peers that the settings name as proxies are trusted, and of the addresses they pass on only the last one that is
not a trusted proxy: the caller may have written everything before it. `X-Forwarded-Host` and `Forwarded` are ignored;
central never builds links from a host that a request names.
"""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from fieldpost.front.options import ProxyNetwork


class Proxies:
    """Middleware that sets client address and scheme from the headers of trusted proxies."""

    def __init__(self, app: ASGIApp, trusted: Sequence[ProxyNetwork]) -> None:
        self._app = app
        self._trusted = trusted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            scope = self._unwrapped(scope)
        await self._app(scope, receive, send)

    def _unwrapped(self, scope: Scope) -> Scope:
        client = scope.get("client")
        if client is None or not is_within(client[0], self._trusted):
            return scope
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        address = caller(_parts(headers, b"x-forwarded-for"), client[0], self._trusted)
        seen = {**scope, "client": (address, 0)}
        protocol = _parts(headers, b"x-forwarded-proto")
        if protocol and protocol[-1].lower() in ("http", "https"):
            is_tls = protocol[-1].lower() == "https"
            plain, safe = ("ws", "wss") if scope["type"] == "websocket" else ("http", "https")
            seen["scheme"] = safe if is_tls else plain
        return seen


def caller(forwarded: Sequence[str], peer: str, trusted: Sequence[ProxyNetwork]) -> str:
    """The last address in the chain that is not a trusted proxy."""
    address = peer
    for text in reversed(forwarded):
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
    """Whether the address is a loopback address."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


def _parts(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    """The comma-separated values of a header, over all its lines."""
    text = ",".join(value.decode("latin-1") for key, value in headers if key == name)
    return [part.strip() for part in text.split(",") if part.strip()]
