"""Which addresses may be spoken to, in both modes, and what an allow list lifts."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.errors import InvalidInput
from fieldpost.outbound.ranges import Allowed, Mode, parse_allowed, refusal

NOBODY = Allowed()

PUBLIC = [
    "8.8.8.8",
    "1.1.1.1",
    "193.0.6.139",
    "100.63.255.255",
    "100.128.0.0",
    "172.15.0.1",
    "172.32.0.1",
    "2a00:1450::1",
]
PRIVATE = [
    *("127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("100.64.0.1", "192.0.0.8", "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.9", "192.0.2.1", "240.0.0.1"),
    *("::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:100.64.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1"),
    *(
        "64:ff9b::808:808",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "2001:1::1",
        "2001:10::1",
        "2001:db8::1",
    ),
    *("fc00::1", "fd12::1", "fec0::1", "3fff::1", "5f00::1", "100::1", "4000::1", "2a00:1::5efe:a00:1"),
]
NEVER = [
    *("0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    *("224.0.0.1", "239.255.255.255", "255.255.255.255"),
    *("::", "fe80::1", "febf::1", "ff02::1", "fd00:ec2::254", "fd20:ce::254"),
    *("::ffff:169.254.169.254", "::169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"),
    *(
        "2001:0:a9fe:a9fe::1",
        "2001:0:808:808:0:0:5601:5601",
        "2a00:1::5efe:a9fe:a9fe",
        "64:ff9b:1::a9fe:a9fe",
        "64:ff9b:1::a00:1",
        "64:ff9b:1:a9fe:a9:fe00::",
    ),
]


def refused(address: str, mode: Mode, allowed: Allowed = NOBODY, host: str = "h.example") -> bool:
    return refusal(ip_address(address), host, mode, allowed) is not None


@pytest.mark.dec("DEC-35")
@pytest.mark.parametrize("address", [*PRIVATE, *NEVER])
def test_strict_policy_allows_public_addresses_only(address: str) -> None:
    assert refused(address, "strict")


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_may_be_reached(address: str) -> None:
    assert not refused(address, "strict")
    assert not refused(address, "admin")


@pytest.mark.dec("DEC-35")
@pytest.mark.parametrize("address", PRIVATE)
def test_lenient_policy_allows_private_addresses(address: str) -> None:
    assert not refused(address, "admin")


@pytest.mark.dec("DEC-35")
@pytest.mark.parametrize("address", NEVER)
def test_link_local_and_metadata_addresses_are_denied_by_every_policy(address: str) -> None:
    assert refused(address, "admin")


@pytest.mark.dec("DEC-35")
@pytest.mark.parametrize("mode", ["strict", "admin"])
def test_allow_list_permits_its_entries_and_a_network_never_permits_metadata(mode: Mode) -> None:
    wide = parse_allowed(["0.0.0.0/0", "::/0"])
    assert not refused("10.0.0.1", mode, wide)
    assert not refused("fd12::1", mode, wide)
    for address in NEVER:
        assert refused(address, mode, wide)
    exact = parse_allowed(["169.254.169.254", "Metadata.Example."])
    assert not refused("169.254.169.254", mode, exact)
    assert refused("169.254.169.253", mode, exact)
    assert not refused("169.254.1.1", mode, exact, host="metadata.example")
    assert not refused("10.0.0.1", mode, exact, host="METADATA.example.")


@pytest.mark.parametrize("entry", ["10.0.0.0/33", "10.0.0.1/8", "a b", "http://x", "::g", "", "ä.example", "-x"])
def test_invalid_entry_of_the_allow_list_is_rejected(entry: str) -> None:
    with pytest.raises(InvalidInput, match="is not a host name, address or network"):
        parse_allowed([entry])


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_ipv4_address_inside_an_ipv6_one_is_judged_the_same(address: IPv4Address) -> None:
    if refusal(address, "h", "admin", NOBODY) is None:
        return
    low = int(address)
    for carried in (low, 0xFFFF << 32 | low, 0x64FF9B << 96 | low, 0x2002 << 112 | low << 80):
        assert low <= 1 or refusal(IPv6Address(carried), "h", "admin", NOBODY) is not None


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_strict_policy_denies_every_private_address(address: IPv4Address) -> None:
    networks = map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "169.254.0.0/16"))
    if any(address in network for network in networks):
        assert refusal(address, "h", "strict", NOBODY) is not None
