"""Address ranges that may be contacted. An explicit list, since the flags of `ipaddress` vary between versions.

Two modes. *Strict* is for URLs from subscribers (webhooks, chat): only the public Internet. *Admin* is for hosts from
an administrator or a site's files (mail servers, token endpoints): private and loopback addresses are allowed, but
never link-local, metadata, multicast or unspecified ones, which are useful only to an attacker.

The operator's allow list overrides denials. A name or a single address overrides any denial; a network overrides only
those of the strict mode, so `0.0.0.0/0` opens the private ranges but not the metadata service. An IPv6 address that
embeds an IPv4 address is also checked by that; in a local NAT64 prefix its place is unknown, so all of it is denied.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal

from fieldpost.core.errors import InvalidInput

Address = IPv4Address | IPv6Address
IpNetwork = IPv4Network | IPv6Network
Mode = Literal["strict", "admin"]

_NEVER: tuple[tuple[str, str], ...] = (
    ("0.0.0.0/8", "unspecified"),
    ("169.254.0.0/16", "link-local"),
    ("100.100.100.200/32", "a metadata service"),
    ("168.63.129.16/32", "a metadata service"),
    ("192.0.0.192/32", "a metadata service"),
    ("224.0.0.0/4", "multicast"),
    ("255.255.255.255/32", "broadcast"),
    ("::/128", "unspecified"),
    ("64:ff9b:1::/48", "a local NAT64 prefix"),
    ("fe80::/10", "link-local"),
    ("fd00:ec2::254/128", "a metadata service"),
    ("fd20:ce::254/128", "a metadata service"),
    ("ff00::/8", "multicast"),
)

_NOT_PUBLIC: tuple[tuple[str, str], ...] = (
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "shared (carrier NAT)"),
    ("127.0.0.0/8", "loopback"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "reserved for protocols"),
    ("192.0.2.0/24", "for documentation"),
    ("192.88.99.0/24", "a 6to4 relay"),
    ("192.168.0.0/16", "private"),
    ("198.18.0.0/15", "for benchmarks"),
    ("198.51.100.0/24", "for documentation"),
    ("203.0.113.0/24", "for documentation"),
    ("240.0.0.0/4", "reserved"),
    ("2001::/23", "reserved for protocols"),
    ("2001:db8::/32", "for documentation"),
    ("2002::/16", "6to4"),
    ("3fff::/20", "for documentation"),
)

_PUBLIC_IPV6 = IPv6Network("2000::/3")
"""The IPv6 range allocated for public use."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """The operator's allow list."""

    names: frozenset[str] = frozenset()
    addresses: frozenset[Address] = frozenset()
    networks: tuple[IpNetwork, ...] = field(default=())


def parse_allowed(entries: Iterable[str]) -> Allowed:
    """Parse host names, addresses and networks (`10.1.0.0/16`). Raises InvalidInput naming the invalid entry."""
    names, addresses, networks = set(), set(), []
    for entry in entries:
        try:
            if "/" in entry:
                networks.append(ip_network(entry))
                continue
            addresses.add(ip_address(entry))
        except ValueError:
            if not _NAME.fullmatch(entry.lower()):
                shown = repr(entry[:64])
                raise InvalidInput(
                    "outbound.allow", f"{shown} is not a host name, address or network", field="allow"
                ) from None
            names.add(entry.lower().rstrip("."))
    return Allowed(frozenset(names), frozenset(addresses), tuple(networks))


def refusal(address: Address, host: str, mode: Mode, allowed: Allowed) -> str | None:
    """Why this address of this host may not be contacted; None if it may."""
    if host.lower().rstrip(".") in allowed.names or address in allowed.addresses:
        return None
    judged = (address, *_carried(address))
    for one in judged:
        if found := _within(one, _NEVER_NETWORKS):
            return f"{address} is {found}" if one == address else f"{address} carries {one}, which is {found}"
    if mode == "admin" or any(address in network for network in allowed.networks if network.version == address.version):
        return None
    for one in judged:
        if found := _within(one, _NOT_PUBLIC_NETWORKS):
            return f"{address} is {found}" if one == address else f"{address} carries {one}, which is {found}"
    if isinstance(address, IPv6Address) and address not in _PUBLIC_IPV6:
        return f"{address} is not a public address"
    return None


def _within(address: Address, networks: tuple[tuple[IpNetwork, str], ...]) -> str | None:
    return next((what for network, what in networks if address.version == network.version and address in network), None)


def _carried(address: Address) -> Iterator[IPv4Address]:
    """The IPv4 addresses embedded in an IPv6 address by transition mechanisms."""
    if not isinstance(address, IPv6Address):
        return
    number = int(address)
    low = IPv4Address(number & 0xFFFFFFFF)
    if any(address in network for network in _CARRIERS) and number > 1:
        yield low
    if number >> 112 == 0x2002:  # 6to4
        yield IPv4Address(number >> 80 & 0xFFFFFFFF)
    if number >> 96 == 0x20010000:  # Teredo: the server, and the client with inverted bits
        yield IPv4Address(number >> 64 & 0xFFFFFFFF)
        yield IPv4Address(~number & 0xFFFFFFFF)
    if number >> 32 & 0xFDFFFFFF == 0x5EFE:  # ISATAP
        yield low


_NAME = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?\.?")
_CARRIERS = tuple(map(IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
_NEVER_NETWORKS = tuple((ip_network(network), what) for network, what in _NEVER)
_NOT_PUBLIC_NETWORKS = tuple((ip_network(network), what) for network, what in _NOT_PUBLIC)
