"""Resolves a host to the addresses that may be contacted. Connections use the checked addresses, not a second DNS
lookup, which could return others."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address

import structlog

from fieldpost.core.errors import InvalidInput
from fieldpost.outbound.ranges import Address, Allowed, Mode, refusal
from fieldpost.outbound.resolver import SystemResolver

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a host and a port to addresses. Raises OSError (including socket.gaierror) if there are none."""

LOCATE_S = 5.0
"""Timeout of the check that a configured host exists."""
PASSED_MAX = 10_000
_NO_SUCH_NAME = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}

log = structlog.get_logger()


class Blocked(Exception):
    """The address is denied by policy; a retry does not help."""

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(f"{host} may not be reached: {reason}")
        self.host = host
        self.reason = reason


class AddressGuard:
    """Checks hosts in one mode; resolves names by the operating system unless `resolve` is given."""

    def __init__(self, mode: Mode, allowed: Allowed | None = None, resolve: Resolve | None = None) -> None:
        self._mode = mode
        self._allowed = allowed or Allowed()
        self._resolve = resolve or SystemResolver()
        self._passed: set[tuple[str, Address]] = set()
        """Addresses that were allowed; the rules do not change."""

    def for_administrator(self) -> "AddressGuard":
        """The guard for hosts that only an administrator sets, with the same resolver."""
        return self if self._mode == "admin" else AddressGuard("admin", self._allowed, self._resolve)

    async def addresses(self, host: str, port: int) -> list[Address]:
        """All addresses of a host, checked. Raises Blocked if any is denied, OSError if there are none."""
        try:
            found = [ip_address(host.partition("%")[0])]
        except ValueError:
            found = [ip_address(text.partition("%")[0]) for text in await self._resolve(host, port)]
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "the name has no address")
        for address in found:
            self.check(address, host)
        return found

    async def check_hosts(self, host: str, field: str) -> None:
        """Raise InvalidInput if a configured host does not exist or is denied. A host that cannot be resolved within
        `LOCATE_S` passes."""
        try:
            async with asyncio.timeout(LOCATE_S):
                await self.addresses(host, 0)
        except Blocked as blocked:
            raise InvalidInput("host.blocked", str(blocked), field=field) from None
        except socket.gaierror as error:
            if error.errno in _NO_SUCH_NAME:
                raise InvalidInput(
                    "host.unknown", f"host {host!r} does not exist", hint="fix the name or use an address", field=field
                ) from None
        except OSError:  # including TimeoutError
            pass

    def check(self, address: Address, host: str) -> None:
        """Raise Blocked if the address is denied."""
        if (host, address) in self._passed:
            return
        reason = refusal(address, host, self._mode, self._allowed)
        if reason is not None:
            log.warning("outbound.blocked", host=host, address=str(address), mode=self._mode, reason=reason)
            raise Blocked(host, reason)
        if len(self._passed) >= PASSED_MAX:
            self._passed.clear()
        self._passed.add((host, address))
