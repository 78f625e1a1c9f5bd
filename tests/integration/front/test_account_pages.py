"""The pages of logging in, of the one-time link and of one's own account, without a browser."""

import re
from collections.abc import AsyncIterator

import httpx2
import pytest

from fieldpost.core.login import WITH_ACCOUNT
from fieldpost.testing import ManualClock
from support.front import ADMIN, VIEWER, Front, open_front

GOOD = "several words of mine"
COOKIE = "fieldpost-session"


@pytest.fixture
async def front(sqlite_url: str) -> AsyncIterator[Front]:
    async with open_front(sqlite_url, ManualClock()) as opened:
        yield opened


async def test_link_can_be_opened_often_and_used_once(front: Front) -> None:
    link = await front.operate.users.reset_password(ADMIN, "viewer")
    async with front.client() as client:
        for _ in range(3):
            page = await client.get(link.path)
            assert page.status_code == 200, "looking uses nothing up, as mail programs look by themselves"
            assert "viewer" in page.text
        form = {"csrf": token_in(page), "link": link.token, "password": GOOD, "again": "another"}
        assert "do not match" in (await client.post("/set-password", data=form)).text
        form |= {"password": "short", "again": "short"}
        assert "at least 12 characters" in (await client.post("/set-password", data=form)).text
        form |= {"password": GOOD, "again": GOOD}
        done = await client.post("/set-password", data=form)
        assert (done.status_code, done.headers["location"]) == (303, "/")
        assert (await client.get("/")).status_code == 200
    async with front.client() as client:
        gone = await client.get(link.path)
    assert gone.status_code == 404
    assert "it was used" in gone.text


@pytest.mark.threat(10)
@pytest.mark.bad_input(57)
async def test_link_cannot_be_used_by_a_form_of_another_site(front: Front) -> None:
    link = await front.operate.users.reset_password(ADMIN, "viewer")
    form = {"csrf": "0" * 64, "link": link.token, "password": GOOD, "again": GOOD}
    async with front.client() as client:
        await client.get(link.path)
        assert (await client.post("/set-password", data=form)).status_code == 403
    assert await front.operate.logins.whose_link(link.token) == "viewer"


@pytest.mark.threat(12)
async def test_every_login_gets_a_new_id_and_ends_the_former_session(front: Front) -> None:
    accounts = front.operate.accounts
    async with front.client() as client:
        await log_in(front, client, "viewer")
        first = client.cookies[COOKIE]
        link = await front.operate.users.reset_password(ADMIN, "operator")
        page = await client.get(link.path)
        form = {"csrf": token_in(page), "link": link.token, "password": GOOD, "again": GOOD}
        assert (await client.post("/set-password", data=form)).status_code == 303
        second = client.cookies[COOKIE]
    assert first != second
    assert await accounts.by_session(first) is None
    assert (await accounts.by_session(second)).name == "operator"  # type: ignore[union-attr]


@pytest.mark.threat(12)
async def test_a_password_is_changed_and_the_session_gets_a_new_id(front: Front) -> None:
    elsewhere = await front.operate.logins.log_in("viewer", front.password("viewer"))
    async with front.client() as client:
        await log_in(front, client, "viewer")
        before = client.cookies[COOKIE]
        page = await client.get("/account")
        form = {"csrf": token_in(page), "old": "wrong", "password": GOOD, "again": GOOD}
        refused = await client.post("/account/password", data=form)
        assert (refused.status_code, "present password is wrong" in refused.text) == (422, True)
        form["old"] = front.password("viewer")
        done = await client.post("/account/password", data=form)
        assert (done.status_code, done.headers["location"]) == (303, "/account?done=password")
        assert "Password changed" in (await client.get("/account?done=password")).text
        assert client.cookies[COOKIE] != before
    for old in (before, elsewhere.token):
        assert await front.operate.accounts.by_session(old) is None
    await front.operate.logins.log_in("viewer", GOOD)


async def test_user_ends_a_session_and_logs_out_everywhere(front: Front) -> None:
    other = await front.operate.logins.log_in("viewer", front.password("viewer"))
    async with front.client() as client:
        await log_in(front, client, "viewer")
        page = await client.get("/account")
        assert page.text.count("this session") == 1
        ids = re.findall(r"/account/sessions/(\w+)/end", page.text)
        assert len(ids) == 2
        [ended] = [one for one in ids if one in other.token]
        answer = await client.post(f"/account/sessions/{ended}/end", data={"csrf": token_in(page)})
        assert answer.headers["location"] == "/account?done=ended"
        assert await front.operate.accounts.by_session(other.token) is None
        cookie = client.cookies[COOKIE]
        answer = await client.post("/account/log-out-everywhere", data={"csrf": token_in(page)})
        assert answer.headers["location"] == "/login"
        assert COOKIE not in client.cookies
    assert await front.operate.accounts.by_session(cookie) is None


@pytest.mark.threat(12)
async def test_live_updates_do_not_extend_a_session(front: Front) -> None:
    async with front.client() as client:
        await log_in(front, client, "viewer")
        for _ in range(4):
            front.clock.advance(3600 / 2)
            assert (await client.get("/", headers={"hx-request": "true"})).status_code in (200, 401)
        assert (await client.get("/")).status_code == 303


@pytest.mark.bad_input(58)
@pytest.mark.threat(13)
async def test_known_and_unknown_users_wait_after_too_many_failures(front: Front) -> None:
    told = []
    for name in ("viewer", "nobody"):
        async with front.client() as client:
            page = await client.get("/login")
            form = {"csrf": token_in(page), "name": name, "password": "wrong"}
            for _ in range(WITH_ACCOUNT.free + 1):
                assert (await client.post("/login", data=form)).status_code == 401
            waiting = await client.post("/login", data=form)
            assert waiting.status_code == 429
            told.append(re.sub("viewer|nobody|[0-9a-f]{64}", "", waiting.text))
    assert told[0] == told[1]
    assert "Too many failed logins; wait 2 s, then try again" in told[0]


async def test_session_shows_browser_and_system_of_its_user_agent(front: Front) -> None:
    agents = {
        "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0": "Firefox on Linux",
        "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) Version/19.0 Safari/604.1": "Safari on iPhone",
        "curl/8": "curl/8",
        "<script>alert(1)</script>": "&lt;script&gt;alert(1)&lt;/script&gt;",
    }
    for agent, shown in agents.items():
        async with front.client() as client:
            client.headers["user-agent"] = agent
            await log_in(front, client, "viewer")
            assert shown in (await client.get("/account")).text
    assert len(await front.operate.logins.sessions(VIEWER)) == len(agents)


async def log_in(front: Front, client: httpx2.AsyncClient, name: str) -> None:
    form = {"csrf": token_in(await client.get("/login")), "name": name, "password": front.password(name)}
    assert (await client.post("/login", data=form)).status_code == 303


def token_in(page: httpx2.Response) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page.text)
    assert found, page.text
    return found[1]
