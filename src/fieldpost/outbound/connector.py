"""Connections of the guarded client: only to checked addresses, limited per host, with few idle ones."""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from fieldpost.outbound.connect import STAGGER_S
from fieldpost.outbound.guard import AddressGuard, Blocked
from fieldpost.outbound.progress import HttpPhase, current_progress

IDLE_MAX = 256


class HostSlots:
    """Limits the requests in progress per host; further ones wait in order.

    aiohttp's own limit is per host and port, so that a host with many ports would get many times its share.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._hosts: dict[str, asyncio.Semaphore] = {}
        self._requests: Counter[str] = Counter()
        """Waiting and in progress, by host."""

    @asynccontextmanager
    async def slot(self, host: str) -> AsyncIterator[None]:
        semaphore = self._hosts.setdefault(host, asyncio.Semaphore(self._limit))
        self._requests[host] += 1
        try:
            async with semaphore:
                yield
        finally:
            self._requests[host] -= 1
            if not self._requests[host]:
                del self._requests[host], self._hosts[host]


class GuardedConnector(aiohttp.TCPConnector):
    """Connects to checked addresses only; `limit` counts busy connections, `IDLE_MAX` idle ones.

    Overrides a private method of aiohttp, which limits busy connections only: ten thousand receivers would otherwise
    use as many file descriptors.
    """

    def __init__(self, guard: AddressGuard, tls_context: ssl.SSLContext | None, limit: int) -> None:
        super().__init__(
            resolver=_JudgingResolver(guard),
            use_dns_cache=False,
            socket_factory=_make_socket,
            ssl=tls_context if tls_context is not None else True,
            limit=limit,
            happy_eyeballs_delay=STAGGER_S,
        )

    def _release(self, key: Any, protocol: Any, *, should_close: bool = False) -> None:
        is_full = sum(map(len, self._conns.values())) >= IDLE_MAX
        super()._release(key, protocol, should_close=should_close or is_full)


class _JudgingResolver(AbstractResolver):
    """Returns only addresses that the guard has checked, and records them for the request."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        progress = current_progress.get()
        progress.phase = HttpPhase.RESOLVE
        try:
            found = await self._guard.addresses(host, port)
        except Blocked as blocked:
            raise _BlockedError(blocked) from None
        progress.phase = HttpPhase.CONNECT
        progress.permitted.update(found)
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in found
        ]

    async def close(self) -> None:
        pass


class _BlockedError(OSError):
    """Blocked as an OSError, which aiohttp passes on."""

    def __init__(self, blocked: Blocked) -> None:
        super().__init__(str(blocked))
        self.blocked = blocked


def _make_socket(address_info: Any) -> socket.socket:
    family, kind, protocol, _, sockaddr = address_info
    address = ip_address(str(sockaddr[0]).partition("%")[0])
    progress = current_progress.get()
    if address not in progress.permitted:
        raise _BlockedError(Blocked(str(address), "the address was not checked for this request"))
    made = socket.socket(family, kind, protocol)
    progress.sockets.append(made)
    return made


def blocked_in(error: BaseException) -> Blocked | None:
    """The denial by the guard that caused this error, if any."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, _BlockedError):
            return seen.blocked
        seen = getattr(seen, "os_error", None) or seen.__cause__ or seen.__context__
    return None
