"""Admission of connections: caps per address and network, the share of sites, and what a closed connection returns."""

from functools import partial

import pytest

from fieldpost.core.errors import Unavailable
from fieldpost.front.admission import STATE_KEY, Admission, until_closed
from fieldpost.front.options import FrontOptions


def ignore() -> None:
    """Close nothing."""


@pytest.mark.threat(29)
async def test_an_ipv6_network_has_a_cap_over_its_addresses() -> None:
    admission = Admission(FrontOptions(connections_per_network=4))
    admitted = [admission.admit(f"2001:db8::{n:x}", ignore) for n in range(4)]
    with pytest.raises(Unavailable, match="2001:db8::/64"):
        admission.admit("2001:db8::ffff", ignore)
    admission.admit("2001:db8:0:1::1", ignore)
    admitted[0].release()
    admission.admit("2001:db8::ffff", ignore).authenticated(is_site=False)
    admission.admit("2001:db8::ffff", ignore)


@pytest.mark.threat(29)
async def test_mapped_address_counts_as_its_ipv4_address_and_a_trusted_proxy_is_exempt() -> None:
    admission = Admission(FrontOptions(connections_per_address=1, trusted_proxies="10.0.0.1"))
    admission.admit("192.0.2.1", ignore)
    with pytest.raises(Unavailable, match="have not authenticated"):
        admission.admit("::ffff:192.0.2.1", ignore)
    for _ in range(5):
        admission.admit("10.0.0.1", ignore)


@pytest.mark.threat(28)
async def test_the_allowance_of_a_connection_is_returned_when_its_socket_is_closed() -> None:
    returned: list[bool] = []
    admitted = Admission(FrontOptions()).admit("192.0.2.1", ignore)
    with until_closed({STATE_KEY: admitted}, lambda: returned.append(True)):
        pass
    assert returned == []
    admitted.release()
    admitted.release()
    assert returned == [True]
    with until_closed({}, lambda: returned.append(True)):
        assert returned == [True]
    assert returned == [True, True]


@pytest.mark.threat(29)
async def test_the_connection_that_has_waited_longest_since_its_last_step_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fieldpost.front.admission.WAIT_MIN_S", 0.0)
    closed: list[str] = []
    admission = Admission(FrontOptions(connections_max=16))
    admitted = [admission.admit(f"192.0.2.{n}", partial(closed.append, str(n))) for n in range(16)]
    admitted[0].work()
    admitted[1].wait()
    for n in range(100, 115):
        admission.admit(f"192.0.2.{n}", ignore)
    assert closed == [str(n) for n in (*range(2, 16), 1)], "the first is at work, the second has taken a step"
