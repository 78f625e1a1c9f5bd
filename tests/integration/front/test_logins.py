"""Logging in: what is refused, what it costs, how long one waits; passwords and one-time links."""

import asyncio
import time
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from fieldpost.central.access.account_options import AccountOptions
from fieldpost.central.access.logins import Logins, NewSession, Origin, TooManyLogins
from fieldpost.central.access.passwords import Passwords
from fieldpost.central.upkeep.leader import Leader
from fieldpost.central.upkeep.options import UpkeepOptions
from fieldpost.central.upkeep.purge import Purge
from fieldpost.core.actor import Actor, Role
from fieldpost.core.errors import Conflict, Denied, InvalidInput, NotFound
from fieldpost.core.login import PASSWORD_BYTES_MAX, WITH_ACCOUNT, WITH_NETWORK
from support.front import ADMIN, VIEWER, Front

HERE = Origin("192.0.2.7", "Browser 1.0")
GOOD = "several words of mine"


WRONG = (
    ("viewer", "wrong"),
    ("viewer", ""),
    ("nobody", "wrong"),
    ("", ""),
    ("vi\x00ewer", "x"),
    ("ᴠiewer", "viewer's own password"),
    ("VIEWER", "viewer's own password"),
    ("viewer", "x" * 1_000_000),
    ("x" * 1_000_000, "x"),
    ("\udcff", "\udcff"),
)


@pytest.mark.bad_input(58)
@pytest.mark.threat(13)
async def test_every_wrong_login_has_the_same_error(front: Front) -> None:
    for name, password in WRONG:
        with capture_logs() as logs, pytest.raises(Denied) as refused:
            await front.operate.logins.log_in(name, password, HERE)
        assert (refused.value.code, refused.value.message) == ("login.refused", "the name or the password is wrong")
        [line] = [line for line in logs if line["event"] == "login.refused"]
        assert line["address"] == HERE.address
        assert line["name"] in (name, "?")


@pytest.mark.bad_input(58)
@pytest.mark.threat(13)
async def test_unknown_name_costs_a_hash_like_a_known_one_and_a_too_long_password_costs_none(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    verify = Passwords._verify

    def counting(self: Passwords, stored: str, password: str) -> bool:
        hashed.append(stored)
        return verify(self, stored, password)

    monkeypatch.setattr(Passwords, "_verify", counting)
    logins = Logins(front.centre.store, front.clock)
    link = await front.operate.users.reset_password(ADMIN, "viewer")
    await logins.use_link(link.token, GOOD)
    await front.operate.users.add(ADMIN, "not-yet", Role.VIEWER)
    for name, password in (
        ("viewer", "x"),
        ("nobody", "x"),
        ("not-yet", "x"),
        ("viewer", "x" * (PASSWORD_BYTES_MAX + 1)),
    ):
        with pytest.raises(Denied):
            await logins.log_in(name, password)
    cost = [stored.split("$")[:4] for stored in hashed]
    assert len(cost) == 3, "one that is too long is refused before it is hashed"
    assert cost[0] == cost[1] == cost[2], "the same function with the same cost"
    assert cost[0][1] == "argon2id"


@pytest.mark.bad_input(58)
@pytest.mark.threat(13)
@pytest.mark.parametrize("name", ["viewer", "nobody"])
async def test_twenty_wrong_passwords_cause_a_wait_for_known_and_unknown_names(front: Front, name: str) -> None:
    waits = []
    for _ in range(20):
        code, wait_s = await fail(front, name)
        while code == "login.wait":
            waits.append(wait_s)
            front.clock.advance(wait_s)
            code, wait_s = await fail(front, name)
    free = WITH_ACCOUNT.free
    assert waits[:6] == [1, 2, 4, 8, 16, 32]
    assert len(waits) == 20 - free - 1
    assert max(waits) == WITH_ACCOUNT.longest.total_seconds()


@pytest.mark.threat(13)
async def test_right_password_is_not_checked_during_a_wait_and_accepted_afterwards(front: Front) -> None:
    for _ in range(WITH_ACCOUNT.free + 1):
        await fail(front, "viewer")
    with capture_logs() as logs, pytest.raises(TooManyLogins) as waiting:
        await front.operate.logins.log_in("viewer", front.password("viewer"))
    assert [line["event"] for line in logs] == ["login.delayed"]
    front.clock.advance(waiting.value.wait_s)
    await front.operate.logins.log_in("viewer", front.password("viewer"))
    assert (await fail(front, "viewer"))[0] == "login.refused", "and what went wrong before is forgotten"


@pytest.mark.threat(13)
async def test_an_address_that_tries_many_accounts_waits_and_others_do_not(front: Front) -> None:
    for number in range(WITH_NETWORK.free + 1):
        assert (await fail(front, f"person-{number}", HERE))[0] == "login.refused"
    assert (await fail(front, "another", HERE))[0] == "login.wait"
    assert (await front.operate.logins.log_in("viewer", front.password("viewer"), Origin("192.0.2.8"))).token
    front.clock.advance(WITH_NETWORK.first.total_seconds())
    await front.operate.logins.log_in("viewer", front.password("viewer"), HERE)
    assert (await fail(front, "person-1", HERE))[0] == "login.refused"
    assert (await fail(front, "person-2", HERE))[0] == "login.wait", "a good login does not clear the address"
    front.clock.advance(WITH_NETWORK.forgotten_after.total_seconds())
    assert (await fail(front, "person-2", HERE))[0] == "login.refused"


@pytest.mark.threat(13)
async def test_concurrent_guesses_at_two_nodes_are_all_counted(front: Front) -> None:
    nodes = [front.operate.logins, Logins(front.centre.store, front.clock)]
    tries = [fail(front, "nobody", logins=nodes[number % 2]) for number in range(12)]
    codes = [code for code, _ in await asyncio.gather(*tries)]
    assert codes.count("login.refused") == WITH_ACCOUNT.free + 1
    assert codes.count("login.wait") == 12 - WITH_ACCOUNT.free - 1


@pytest.mark.threat(13)
async def test_typed_name_of_a_failed_login_is_not_stored(front: Front) -> None:
    with capture_logs() as logs:
        await fail(front, "My Secret Password!")
    kept = await front.centre.rows("select * from login_delays")
    assert "Secret" not in str(kept)
    assert "Secret" not in str(logs)


async def test_changed_password_ends_all_sessions_and_starts_one(front: Front) -> None:
    accounts, logins = front.operate.accounts, front.operate.logins
    before = [await logins.log_in("viewer", front.password("viewer"), HERE) for _ in range(2)]
    after = await logins.change_password(VIEWER, front.password("viewer"), GOOD, HERE)
    assert [await accounts.by_session(one.token) for one in before] == [None, None]
    assert await accounts.by_session(after.token) == VIEWER
    with pytest.raises(Denied):
        await logins.log_in("viewer", front.password("viewer"))
    await logins.log_in("viewer", GOOD)
    assert ("password.change", "viewer") in await acts(front)


@pytest.mark.threat(13)
async def test_change_requires_the_present_password_and_guesses_cause_a_wait(front: Front) -> None:
    logins = front.operate.logins
    with pytest.raises(Denied) as refused:
        await logins.change_password(VIEWER, "wrong", GOOD, HERE)
    assert refused.value.code == "password.wrong"
    for _ in range(WITH_ACCOUNT.free):
        with pytest.raises(Denied):
            await logins.change_password(VIEWER, "wrong", GOOD, HERE)
    with pytest.raises(TooManyLogins):
        await logins.change_password(VIEWER, front.password("viewer"), GOOD, HERE)


async def test_a_new_password_that_breaks_a_rule_changes_nothing(front: Front) -> None:
    with pytest.raises(InvalidInput) as refused:
        await front.operate.logins.change_password(VIEWER, front.password("viewer"), "short")
    assert (refused.value.code, refused.value.field) == ("password.rule", "password")
    await front.operate.logins.log_in("viewer", front.password("viewer"))


async def test_link_is_valid_once(front: Front) -> None:
    logins = front.operate.logins
    link = await front.operate.users.reset_password(ADMIN, "viewer")
    session = await logins.log_in("viewer", front.password("viewer"))
    results = await asyncio.gather(
        *(logins.use_link(link.token, f"{GOOD} {number}", HERE) for number in range(3)), return_exceptions=True
    )
    won = [result for result in results if isinstance(result, NewSession)]
    assert [type(result) for result in results if result not in won] == [NotFound, NotFound]
    assert len(won) == 1
    assert await front.operate.accounts.by_session(session.token) is None, "sessions from before end"
    assert await front.operate.accounts.by_session(won[0].token) == VIEWER
    with pytest.raises(NotFound) as refused:
        await logins.whose_link(link.token)
    assert refused.value.code == "link.invalid"
    assert ("password.set", "viewer") in await acts(front)


async def test_every_invalid_link_has_the_same_error(front: Front) -> None:
    users = front.operate.users
    expired = (await users.reset_password(ADMIN, "operator")).token
    front.clock.advance(AccountOptions().link_s)
    replaced = (await users.reset_password(ADMIN, "viewer")).token
    good = (await users.reset_password(ADMIN, "viewer")).token
    altered = good[:-1] + ("a" if good[-1] != "a" else "b")
    disabled = (await users.add(ADMIN, "gone", Role.VIEWER)).token
    await users.change(ADMIN, "gone", 1, is_disabled=True)
    for link in (expired, replaced, altered, disabled, front.tokens["viewer"], "x" * 5000, ""):
        with pytest.raises(NotFound) as refused:
            await front.operate.logins.use_link(link, GOOD)
        assert refused.value.code == "link.invalid"
        assert "used, has expired, or was replaced" in refused.value.message
    await front.operate.logins.use_link(good, GOOD)


async def test_rejected_password_does_not_use_up_the_link(front: Front) -> None:
    link = await front.operate.users.reset_password(ADMIN, "viewer")
    with pytest.raises(InvalidInput):
        await front.operate.logins.use_link(link.token, "short")
    await front.operate.logins.log_in("viewer", front.password("viewer"))
    await front.operate.logins.use_link(link.token, GOOD)


@pytest.mark.threat(12)
async def test_user_sees_and_ends_own_sessions_only(front: Front) -> None:
    accounts, logins = front.operate.accounts, front.operate.logins
    first = await logins.log_in("viewer", front.password("viewer"), HERE)
    front.clock.advance(60)
    second = await logins.log_in("viewer", front.password("viewer"), Origin("192.0.2.9", "x" * 5000))
    found = await logins.sessions(VIEWER)
    assert [one.address for one in found] == ["192.0.2.9", "192.0.2.7"]
    assert len(found[0].user_agent or "") <= 256
    stranger = Actor("operator", Role.OPERATOR)
    for actor, prefix in ((stranger, found[1].prefix), (VIEWER, "nonsense")):
        with pytest.raises(Exception, match="no such session"):
            await logins.end(actor, prefix)
    await logins.end(VIEWER, found[1].prefix)
    assert await accounts.by_session(first.token) is None
    assert await accounts.by_session(second.token) == VIEWER
    assert await logins.log_out_everywhere(VIEWER) == 1
    assert await accounts.by_session(second.token) is None


async def test_two_who_change_a_password_at_once_do_not_both_succeed(front: Front) -> None:
    logins, old = front.operate.logins, front.password("viewer")
    results = await asyncio.gather(
        *(logins.change_password(VIEWER, old, f"{GOOD} {n}") for n in range(2)), return_exceptions=True
    )
    assert sum(isinstance(result, NewSession) for result in results) == 1
    assert sum(isinstance(result, Conflict | Denied) for result in results) == 1


@pytest.mark.threat(13)
async def test_known_and_unknown_names_take_the_same_time(front: Front) -> None:
    """By the hash as it is in earnest, and by this process's own work, since the machine does other things beside."""
    logins = Logins(front.centre.store, front.clock)
    link = await front.operate.users.reset_password(ADMIN, "viewer")
    await logins.use_link(link.token, GOOD)
    took: dict[str, list[float]] = {"viewer": [], "nobody": []}
    for _ in range(3):
        for name, times in took.items():
            began = time.process_time()
            await fail(front, name, logins=logins)
            times.append(time.process_time() - began)
            front.clock.advance(timedelta(hours=1).total_seconds())
    known, unknown = (min(times) for times in took.values())
    assert 0.4 < known / unknown < 2.5


async def test_expired_sessions_links_and_failures_are_purged_and_no_others(front: Front) -> None:
    centre, logins = front.centre, front.operate.logins
    await logins.log_in("viewer", front.password("viewer"))
    await fail(front, "nobody", HERE)
    await front.operate.users.reset_password(ADMIN, "viewer")
    front.clock.advance(timedelta(days=9).total_seconds())
    await logins.log_in("operator", front.password("operator"))
    await fail(front, "somebody")
    await front.operate.users.reset_password(ADMIN, "operator")
    options = UpkeepOptions()
    leader = Leader(centre.store, "node-1", front.clock, options)
    assert await leader.campaign()
    assert await Purge(centre.store, front.clock, leader, options).sweep()
    owners = await centre.rows("select kind, owner from tokens where kind <> 'api' order by kind")
    assert owners == [("session", "operator"), ("site", "plant-7")]
    assert await centre.rows("select user_name from login_links") == [("operator",)]
    assert len(await centre.rows("select key from login_delays")) == 2, "somebody's, and from this network"


async def fail(
    front: Front, name: str, origin: Origin | None = None, logins: Logins | None = None
) -> tuple[str, float]:
    try:
        await (logins or front.operate.logins).log_in(name, "wrong", origin)
    except (Denied, TooManyLogins) as error:
        return error.code, error.wait_s if isinstance(error, TooManyLogins) else 0.0
    raise AssertionError("a wrong password was taken")


async def acts(front: Front) -> list[tuple[str, str]]:
    rows = await front.centre.rows("select request_summary, actor from audit where kind = 'operator_action'")
    return [(str(row[0]), str(row[1])) for row in rows]
