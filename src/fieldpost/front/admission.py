"""Admission of connections: which sockets may stay open, counted from accept to close.

A connection counts against its client address until it authenticates, so that one address cannot take all places. A
quarter of `connections_max` is kept for sites: when the other three quarters are in use, a new connection is served
only if it authenticates as a site or reads `/healthz`. When all places are in use, central closes the connection that
has waited longest for its next request or its TLS handshake. An honest client reconnects, and hostile clients that only
wait cannot keep a site out.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import IPv6Address, ip_address
from typing import Any

from fieldpost.core.errors import Unavailable
from fieldpost.front.options import FrontOptions
from fieldpost.front.proxies import is_within

STATE_KEY = "open_connection"
"""The key of the OpenConnection in the `state` of an ASGI scope."""
SITE_SHARE = 4
"""One place in this many is kept for connections that authenticated as a site."""
NETWORK_BITS = 64
WAIT_MIN_S = 0.2
"""A connection may wait this long before it is closed to make room; its request may already be on the way."""
BURST = 32
"""How many connections may exceed the maximum while the others have not waited long enough."""


class OpenConnection:
    """One admitted connection. `abort` closes its socket at once."""

    __slots__ = ("_admission", "_counted", "_on_release", "abort", "is_open", "is_reserved", "is_site")

    def __init__(
        self, admission: "Admission", abort: Callable[[], None], counted: tuple[str, ...], *, is_reserved: bool
    ) -> None:
        self.abort = abort
        self.is_open = True
        self.is_reserved = is_reserved
        """It has one of the places kept for sites and must authenticate as one."""
        self.is_site = False
        self._admission = admission
        self._counted = counted
        self._on_release: list[Callable[[], None]] = []

    def wait(self) -> None:
        """The connection waits for its client, from now on, and may be closed to make room."""
        if self.is_open:
            self._admission.waiting.pop(self, None)
            self._admission.waiting[self] = asyncio.get_running_loop().time()

    def work(self) -> None:
        """A request has arrived. The connection leaves the reserve if one of the shared places has become free."""
        self._admission.waiting.pop(self, None)
        if self.is_reserved:
            self.is_reserved = self._admission.is_reserve_in_use(besides=1)

    def authenticated(self, *, is_site: bool) -> None:
        """Count the connection no longer against its address and, for a site, not against the shared places."""
        self._admission.forget(self._counted)
        self._counted = ()
        if is_site and not self.is_site and self.is_open:
            self.is_site, self.is_reserved = True, False
            self._admission.site_count += 1

    @property
    def is_beyond_maximum(self) -> bool:
        return self._admission.is_beyond_maximum

    def at_release(self, callback: Callable[[], None]) -> None:
        """Call this when the connection is closed."""
        self._on_release.append(callback)

    def release(self) -> None:
        """The socket is closed."""
        if not self.is_open:
            return
        self.is_open = False
        self._admission.waiting.pop(self, None)
        self._admission.forget(self._counted)
        self._counted = ()
        self._admission.open_count -= 1
        self._admission.site_count -= self.is_site
        for callback in self._on_release:
            callback()


class Admission:
    """The open connections of this node."""

    def __init__(self, options: FrontOptions) -> None:
        self._options = options
        self._trusted = options.proxies()
        self._shared_max = options.connections_max - options.connections_max // SITE_SHARE
        self._unauthenticated: Counter[str] = Counter()
        self.open_count = 0
        self.site_count = 0
        self.waiting: dict[OpenConnection, float] = {}
        """Connections that wait for their client, and since when; the longest first."""

    def admit(self, address: str | None, abort: Callable[[], None]) -> OpenConnection:
        """Count a connection from this address. Raises Unavailable at the limit."""
        limits = self._limits(address)
        for key, count_max in limits:
            if self._unauthenticated[key] >= count_max:
                raise Unavailable(
                    "http.address_busy", f"{key} has {count_max} connections that have not authenticated, the maximum"
                )
        self._make_room()
        # Without waiting connections there will be no room either.
        if self.open_count >= self._options.connections_max + (BURST if self.waiting else 0):
            raise busy()
        counted = tuple(key for key, _ in limits)
        self._unauthenticated.update(counted)
        admitted = OpenConnection(self, abort, counted, is_reserved=self.is_reserve_in_use())
        self.open_count += 1
        admitted.wait()
        return admitted

    @property
    def is_beyond_maximum(self) -> bool:
        return self.open_count > self._options.connections_max

    def is_reserve_in_use(self, besides: int = 0) -> bool:
        """Whether connections other than sites fill all shared places, not counting `besides` of them."""
        return self.open_count - self.site_count - besides >= self._shared_max

    def forget(self, counted: tuple[str, ...]) -> None:
        """Stop counting a connection against its address and network."""
        for key in counted:
            self._unauthenticated[key] -= 1
            if self._unauthenticated[key] <= 0:
                del self._unauthenticated[key]

    def _make_room(self) -> None:
        """Close the connections that have waited longest until the next one is within the maximum."""
        while self.open_count >= self._options.connections_max and self.waiting:
            longest, since = next(iter(self.waiting.items()))
            if asyncio.get_running_loop().time() - since < WAIT_MIN_S:
                return
            longest.release()
            longest.abort()

    def _limits(self, address: str | None) -> list[tuple[str, int]]:
        """The address and its network, each with its maximum; empty for a trusted proxy or an unknown address."""
        if address is None or is_within(address, self._trusted):
            return []
        try:
            found = ip_address(address.partition("%")[0])
        except ValueError:
            return []
        if not isinstance(found, IPv6Address):
            return [(str(found), self._options.connections_per_address)]
        if found.ipv4_mapped is not None:
            return [(str(found.ipv4_mapped), self._options.connections_per_address)]
        network = IPv6Address(int(found) >> NETWORK_BITS << NETWORK_BITS)
        return [
            (str(found), self._options.connections_per_address),
            (f"{network}/{NETWORK_BITS}", self._options.connections_per_network),
        ]


def busy() -> Unavailable:
    return Unavailable("http.busy", "central has reached its maximum number of connections")


def authenticated(state: Mapping[str, Any] | None, *, is_site: bool = False) -> None:
    """Record on the connection of a request that its caller has authenticated; `state` is that of its scope."""
    connection = _connection(state)
    if connection is not None:
        connection.authenticated(is_site=is_site)


def check_room(state: Mapping[str, Any] | None) -> None:
    """Raise Unavailable if a connection that stays open would exceed the maximum; bursts are for short requests."""
    connection = _connection(state)
    if connection is not None and connection.is_beyond_maximum:
        raise busy()


@contextmanager
def until_closed(state: Mapping[str, Any] | None, give_back: Callable[[], None]) -> Iterator[None]:
    """Call `give_back` when the connection is closed, or after the block if there is no connection to close.

    The application may end long before: a peer that does not read keeps its socket until the close deadline.
    """
    connection = _connection(state)
    if connection is not None and connection.is_open:
        connection.at_release(give_back)
        yield
        return
    try:
        yield
    finally:
        give_back()


def _connection(state: Mapping[str, Any] | None) -> OpenConnection | None:
    return state.get(STATE_KEY) if state else None
