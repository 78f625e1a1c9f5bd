"""Lock-out as an attack: who knows a user's name cannot keep the user from logging in."""

import pytest

from fieldpost.central.access.logins import BROWSER_S, Logins, NewSession, Origin, TooManyLogins
from fieldpost.central.access.signatures import CookieSigner
from fieldpost.core.errors import Denied
from fieldpost.core.login import WITH_ACCOUNT, WITH_EVERYBODY, WITH_NETWORK, network_of
from support.front import Front

pytestmark = pytest.mark.threat(35)
ATTACKER, OWNER = Origin("198.51.100.7"), Origin("192.0.2.7")


async def log_in(front: Front, origin: Origin) -> NewSession:
    return await front.operate.logins.log_in("viewer", front.password("viewer"), origin)


async def guess(front: Front, origin: Origin, count: int = 1, name: str = "viewer") -> str:
    """The last code of so many wrong passwords."""
    code = ""
    for _ in range(count):
        try:
            await front.operate.logins.log_in(name, "wrong", origin)
        except (Denied, TooManyLogins) as error:
            code = error.code
    return code


async def test_guesses_from_one_network_do_not_delay_the_owner_in_another(front: Front) -> None:
    assert await guess(front, ATTACKER, 30) == "login.wait"
    assert (await log_in(front, OWNER)).token
    assert await guess(front, ATTACKER) == "login.wait", "nor does the owner free the attacker"


async def test_many_networks_reach_a_ceiling_and_a_browser_that_logged_in_before_passes(front: Front) -> None:
    known = (await log_in(front, OWNER)).browser
    for number in range(WITH_EVERYBODY.free + 1):
        await guess(front, Origin(f"203.0.{number // 250}.{number % 250}"))
    with pytest.raises(TooManyLogins):
        await log_in(front, Origin("192.0.2.99"))
    assert (await log_in(front, Origin("192.0.2.99", browser=known))).token


async def test_known_browser_is_trusted_for_its_user_only_with_a_time_and_a_number_limit(front: Front) -> None:
    known = (await log_in(front, OWNER)).browser
    assert await guess(front, ATTACKER, WITH_ACCOUNT.free + 2) == "login.wait"
    same_network = Origin(ATTACKER.address, browser=known)
    assert (await log_in(front, same_network)).token, "also behind the attacker's gateway"
    for forged in (known[:-1] + ("0" if known[-1] != "0" else "1"), known.replace("viewer", "operator"), "viewer:1~"):
        with pytest.raises(TooManyLogins):
            await log_in(front, Origin(ATTACKER.address, browser=forged))
    assert await guess(front, same_network, WITH_ACCOUNT.free + 2) == "login.wait", "a stolen cookie guesses no better"
    front.clock.advance(BROWSER_S)
    await guess(front, ATTACKER, WITH_ACCOUNT.free + 2)
    with pytest.raises(TooManyLogins):
        await log_in(front, same_network)


async def test_a_known_browser_is_known_to_all_nodes(front: Front) -> None:
    known = (await log_in(front, OWNER)).browser
    signer = front.operate.logins.signer
    passwords, again = front.operate.logins._passwords, CookieSigner(signer._keys)
    another = Logins(front.centre.store, front.clock, passwords, signer=again)
    await guess(front, OWNER, WITH_ACCOUNT.free + 2)
    assert (await another.log_in("viewer", front.password("viewer"), Origin(OWNER.address, browser=known))).token
    assert front.centre.keyring.cookie_keys, "the keys of cookies come from those of secrets, which all nodes have"
    assert signer._keys == list(front.centre.keyring.cookie_keys)


async def test_addresses_of_one_ipv6_network_count_as_one(front: Front) -> None:
    for number in range(WITH_ACCOUNT.free + 1):
        assert await guess(front, Origin(f"2001:db8:1:2::{number:x}")) == "login.refused"
    assert await guess(front, Origin("2001:db8:1:2:ffff::1")) == "login.wait"
    assert await guess(front, Origin("2001:db8:1:3::1")) == "login.refused"


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unix", "unix"),
        ("", ""),
    ],
)
def test_the_network_of_an_address(address: str, network: str) -> None:
    assert network_of(address) == network


async def test_tries_during_a_wait_count_against_the_network(front: Front) -> None:
    """Otherwise an attacker could go on for ever at no cost, and try one more name as soon as a wait is over."""
    await guess(front, ATTACKER, WITH_ACCOUNT.free + 1)
    await guess(front, ATTACKER, WITH_NETWORK.free)
    assert await guess(front, ATTACKER, name="operator") == "login.wait"
    assert await guess(front, OWNER, name="operator") == "login.refused"


async def test_a_login_that_has_to_wait_writes_no_row_for_its_name(front: Front) -> None:
    for number in range(WITH_NETWORK.free + 1):
        await guess(front, ATTACKER, name=f"person-{number}")
    before = await front.centre.rows("select key from login_delays order by key")
    for number in range(50):
        assert await guess(front, ATTACKER, name=f"another-{number}") == "login.wait"
    assert await front.centre.rows("select key from login_delays order by key") == before
