"""The console without a browser: forms, sessions, cookies, and what is written into a page."""

import re
from datetime import timedelta

import httpx2
import pytest

from fieldpost.core.notification import Status
from support.front import Front

SECRET_PAGES = ("/", "/notifications/0198c8a0-0000-7000-8000-000000000001")


@pytest.mark.parametrize("path", SECRET_PAGES)
async def test_page_redirects_to_the_login_and_back(front: Front, path: str) -> None:
    async with front.client() as client:
        away = await client.get(path)
        assert away.status_code == 303
        login = await client.get(away.headers["location"])
        back = await post_login(front, client, login, "viewer")
    assert back.headers["location"] == path


@pytest.mark.parametrize("path", ["//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"])
async def test_login_does_not_redirect_to_another_server(front: Front, path: str) -> None:
    async with front.client() as client:
        login = await client.get("/login", params={"next": path})
        back = await post_login(front, client, login, "viewer", next=path)
    assert back.headers["location"] == "/"


async def test_a_wrong_password_is_refused_with_the_same_page_for_known_and_unknown_names(front: Front) -> None:
    answers = []
    for name in ("viewer", "nobody"):
        async with front.client() as client:
            login = await client.get("/login")
            answer = await post_login(front, client, login, name, password="wrong")
            answers.append((answer.status_code, re.sub("viewer|nobody|[0-9a-f]{64}", "", answer.text)))
            assert (await client.get("/notifications")).status_code == 303
    assert answers[0] == answers[1]
    assert answers[0][0] == 401


@pytest.mark.threat(10)
@pytest.mark.parametrize(
    ("url", "name", "is_secure"),
    [
        ("http://127.0.0.1", "fieldpost-session", False),
        ("https://central.example", "__Host-fieldpost-session", True),
    ],
)
async def test_the_session_cookie_is_kept_from_scripts_and_other_sites(
    front: Front, url: str, name: str, is_secure: bool
) -> None:
    async with front.client(url=url) as client:
        answer = await post_login(front, client, await client.get("/login"), "viewer")
        [cookie] = [c for c in answer.headers.get_list("set-cookie") if c.startswith(f"{name}=")]
    parts = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert parts >= {"httponly", "samesite=lax", "path=/"}
    assert ("secure" in parts) == is_secure
    assert not any(part.startswith("domain") for part in parts)


async def test_login_starts_a_new_session_and_logout_ends_it_at_central(front: Front) -> None:
    async with front.client() as client:
        client.cookies.set("fieldpost-session", "fp_session_planted_by_somebody", domain="127.0.0.1")
        await post_login(front, client, await client.get("/login"), "viewer")
        cookie = client.cookies.get("fieldpost-session", domain="127.0.0.1")
        assert cookie is not None
        assert "planted" not in cookie
        page = await client.get("/notifications")
        assert page.status_code == 200
        await client.post("/logout", data={"csrf": token_in(page)})
    async with front.client() as client:
        client.cookies.set("fieldpost-session", cookie, domain="127.0.0.1")
        assert (await client.get("/notifications")).status_code == 303


@pytest.mark.threat(10)
@pytest.mark.bad_input(57)
@pytest.mark.parametrize("verb", ["retry", "discard"])
@pytest.mark.parametrize(
    "forgery",
    ["no token", "empty token", "foreign token", "token of the login page", "other site", "same site", "other origin"],
)
async def test_form_of_another_site_changes_nothing(front: Front, verb: str, forgery: str) -> None:
    parked = await front.park()
    before = await front.centre.get(parked)
    async with front.client() as client, front.client() as stranger:
        login = await client.get("/login")
        await post_login(front, client, login, "operator")
        await post_login(front, stranger, await stranger.get("/login"), "operator")
        form = {"version": str(before.version), "csrf": token_in(await client.get("/notifications"))}
        headers: dict[str, str] = {}
        match forgery:
            case "no token":
                del form["csrf"]
            case "empty token":
                form["csrf"] = ""
            case "foreign token":
                form["csrf"] = token_in(await stranger.get("/"))
            case "token of the login page":
                form["csrf"] = token_in(login)
            case "other site":
                headers = {"sec-fetch-site": "cross-site"}
            case "same site":
                headers = {"sec-fetch-site": "same-site"}
            case "other origin":
                headers = {"origin": "http://evil.example"}
        answer = await client.post(f"/notifications/{parked}/{verb}", data=form, headers=headers)
        assert answer.status_code == 403
        assert "nothing was changed" in answer.text
        assert await front.centre.get(parked) == before
        form["csrf"] = token_in(await client.get("/notifications"))
        good = {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1"}
        assert (await client.post(f"/notifications/{parked}/{verb}", data=form, headers=good)).status_code == 303
    assert (await front.centre.get(parked)).status is not Status.PARKED


@pytest.mark.threat(10)
async def test_login_form_of_another_site_is_rejected(front: Front) -> None:
    async with front.client() as client:
        form = {"name": "viewer", "password": front.password("viewer"), "csrf": "0" * 64}
        assert (await client.post("/login", data=form)).status_code == 403
        await client.get("/login")
        assert (await client.post("/login", data=form)).status_code == 403
        assert "fieldpost-session" not in client.cookies


@pytest.mark.bad_input(57)
@pytest.mark.parametrize("verb", ["retry", "discard"])
async def test_get_request_does_not_act(front: Front, verb: str) -> None:
    parked = await front.park()
    async with front.client() as client:
        await post_login(front, client, await client.get("/login"), "operator")
        answer = await client.get(f"/notifications/{parked}/{verb}", headers={"accept": "text/html"})
    # What cannot be taken back is asked for first, on a page of its own.
    assert answer.status_code == (405 if verb == "retry" else 200)
    assert (await front.centre.get(parked)).status is Status.PARKED


@pytest.mark.bad_input(57)
async def test_form_of_an_expired_session_redirects_to_the_login_and_changes_nothing(front: Front) -> None:
    parked = await front.park()
    async with front.client() as client:
        await post_login(front, client, await client.get("/login"), "operator")
        page = await client.get(f"/notifications/{parked}")
        front.clock.advance(timedelta(hours=12).total_seconds())
        form = {"version": str((await front.centre.get(parked)).version), "csrf": token_in(page)}
        for before, following in ((str(page.url), f"%2Fnotifications%2F{parked}"), ("http://evil.example/x", "%2F")):
            answer = await client.post(f"/notifications/{parked}/retry", data=form, headers={"referer": before})
            assert (answer.status_code, answer.headers["location"]) == (303, f"/login?next={following}&done=ended")
            assert "the action was not performed" in (await client.get(answer.headers["location"])).text
        live = await client.get("/notifications", headers={"hx-request": "true"})
        assert (live.status_code, live.headers["hx-redirect"]) == (401, "/login?next=%2Fnotifications")
    assert (await front.centre.get(parked)).status is Status.PARKED


@pytest.mark.req("CMD-10")
@pytest.mark.parametrize("verb", ["retry", "discard"])
async def test_action_in_the_console_equals_that_of_the_api(front: Front, verb: str) -> None:
    by_page, by_api = await front.park(), await front.park()
    async with front.client() as client, front.client("operator") as program:
        await post_login(front, client, await client.get("/login"), "operator")
        page = await client.get(f"/notifications/{by_page}")
        form = {"csrf": token_in(page), "version": version_in(page)}
        assert (await client.post(f"/notifications/{by_page}/{verb}", data=form)).status_code == 303
        version = (await front.centre.get(by_api)).version
        answer = await program.post(f"/api/v1/notifications/{by_api}/{verb}", json={"version": version})
        assert answer.status_code == 200
    one, other = [await front.centre.get(i) for i in (by_page, by_api)]
    assert (one.status, one.cycle, one.version) == (other.status, other.cycle, other.version)
    assert one.status is (Status.PENDING if verb == "retry" else Status.DISCARDED)
    acts = await front.centre.rows(
        "select cast(correlation_id as text), actor, kind, status, target from audit"
        " where actor = 'operator' and correlation_id is not null"
    )
    assert {str(act[0]) for act in acts} == {by_page, by_api}
    assert acts[0][1:] == acts[1][1:]


async def test_stale_page_changes_nothing_and_shows_the_present_state(front: Front) -> None:
    parked = await front.park()
    async with front.client() as client:
        await post_login(front, client, await client.get("/login"), "operator")
        page = await client.get(f"/notifications/{parked}")
        form = {"csrf": token_in(page), "version": version_in(page)}
        assert (await client.post(f"/notifications/{parked}/retry", data=form)).status_code == 303
        twice = await client.post(f"/notifications/{parked}/retry", data=form)
        stale = await client.post(f"/notifications/{parked}/discard", data=form)
    assert (twice.status_code, stale.status_code) == (409, 409)
    assert "Nothing was changed" in stale.text
    assert "pending" in stale.text
    assert (await front.centre.get(parked)).status is Status.PENDING


@pytest.mark.req("KPI-13")
async def test_parked_rows_offer_retry_and_discard_and_stuck_rows_carry_a_badge(front: Front) -> None:
    parked = await front.park(subject="Parked one")
    await front.deliver(subject="Delivered one")
    await front.centre.send("ops", subject="Old one")
    front.clock.advance(601)
    await front.centre.send("ops", subject="New one")
    async with front.client() as client:
        await post_login(front, client, await client.get("/login"), "operator")
        rows = rows_of(await client.get("/notifications"))
    offers = {name: ("/retry" in row, "/discard" in row) for name, row in rows.items()}
    none = (False, False)
    assert offers == {"Parked one": (True, True), "Delivered one": none, "Old one": none, "New one": none}
    assert f"/notifications/{parked}/retry" in rows["Parked one"]
    assert [name for name, row in rows.items() if "stuck" in row] == ["Old one"]


async def test_viewer_gets_no_buttons_and_the_reason(front: Front) -> None:
    parked = await front.park(subject="Parked one")
    async with front.client() as client:
        await post_login(front, client, await client.get("/login"), "viewer")
        assert "/retry" not in rows_of(await client.get("/notifications"))["Parked one"]
        page = await client.get(f"/notifications/{parked}")
    assert "/retry" not in page.text
    assert "your role is viewer" in page.text


async def test_filters_are_in_the_address_and_survive_an_action(front: Front) -> None:
    await front.park(subject="Parked one")
    await front.deliver(subject="Delivered one")
    async with front.client() as client:
        await post_login(front, client, await client.get("/login"), "operator")
        page = await client.get("/notifications?status=parked&site=plant-7&list=ops")
        assert list(rows_of(page)) == ["Parked one"]
        path = re.search(r'action="(/notifications/[^"]*/retry)"', page.text)
        assert path
        back = "/notifications?status=parked&site=plant-7&list=ops"
        form = {"csrf": token_in(page), "version": version_in(page), "next": back}
        answer = await client.post(path[1], data=form)
        assert answer.headers["location"] == f"{back}&done=retried"
        assert "pending again" in (await client.get(answer.headers["location"])).text
        assert list(rows_of(await client.get("/notifications?status=&site=&list="))) == ["Delivered one", "Parked one"]
        assert rows_of(await client.get("/notifications?site=elsewhere")) == {}


async def test_older_pages_are_reached_by_links(front: Front) -> None:
    for number in range(60):
        await front.centre.send("ops", subject=f"Number {number}")
        front.clock.advance(1)
    async with front.client() as client:
        await post_login(front, client, await client.get("/login"), "viewer")
        first = await client.get("/notifications")
        older = re.search(r'rel="next" href="([^"]*)"', first.text)
        assert older
        second = await client.get(older[1].replace("&amp;", "&"))
    assert [*rows_of(first), *rows_of(second)] == [f"Number {number}" for number in reversed(range(60))]
    assert "hx-trigger" in first.text
    assert "hx-trigger" not in second.text, "what is old does not change under the reader"


async def test_a_cursor_that_was_tampered_with_is_explained(front: Front) -> None:
    async with front.client() as client:
        await post_login(front, client, await client.get("/login"), "viewer")
        page = await client.get("/notifications?cursor=AAAA")
    assert page.status_code == 422
    assert "go to the newest" in page.text.lower()


@pytest.mark.threat(11)
async def test_external_text_is_escaped_on_every_page(front: Front) -> None:
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    parked = await front.park(evil, subject=evil, body=evil, script=evil, instance=evil, execution_id=evil)
    async with front.client() as client:
        await post_login(front, client, await client.get("/login"), "operator")
        filtered = {"site": evil, "list": evil}
        pages = [
            await client.get("/notifications"),
            await client.get(f"/notifications/{parked}"),
            await client.get("/notifications", params=filtered),
            await client.get("/login", params={"next": f"/{evil}"}),
        ]
        wrong = await client.get("/notifications/" + evil.replace("/", ""))
    for page in (*pages, wrong):
        assert "<script>" not in page.text
        assert "<img src=x" not in page.text
    assert "&lt;script&gt;alert(1)" in pages[0].text
    assert pages[1].text.count("&lt;script&gt;") >= 8


@pytest.mark.threat(11)
async def test_no_page_has_inline_scripts_or_styles(front: Front) -> None:
    parked = await front.park()
    async with front.client() as client:
        login = await client.get("/login")
        await post_login(front, client, login, "operator")
        pages = [
            login,
            await client.get("/notifications"),
            await client.get(f"/notifications/{parked}"),
            await client.get("/nowhere"),
        ]
    for page in pages:
        assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=|javascript:|hx-on", page.text)
        for address in re.findall(r'(?:src|href|action)="([^"]*)"', page.text):
            assert address.startswith(("/", "#")), "everything comes from this server"


async def test_a_large_form_is_refused_before_anything_is_hashed(front: Front) -> None:
    async with front.client() as client:
        login = await client.get("/login")
        answer = await post_login(front, client, login, "viewer", password="x" * 1_000_000)
    assert answer.status_code == 422
    assert "more than" in answer.text


async def post_login(
    front: Front, client: httpx2.AsyncClient, page: httpx2.Response, name: str, **changes: str
) -> httpx2.Response:
    form = {"csrf": token_in(page), "name": name, "password": front.password(name)}
    hidden = re.search(r'name="next" value="([^"]*)"', page.text)
    assert hidden
    return await client.post("/login", data=form | {"next": hidden[1]} | changes)


def token_in(page: httpx2.Response) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page.text)
    assert found, page.text
    return found[1]


def version_in(page: httpx2.Response) -> str:
    found = re.search(r'name="version" value="(\d+)"', page.text)
    assert found, page.text
    return found[1]


def rows_of(page: httpx2.Response) -> dict[str, str]:
    """The list's rows by subject, in order."""
    body = page.text.partition("<tbody>")[2].partition("</tbody>")[0]
    rows = re.findall(r"<tr .*?</tr>", body, re.DOTALL)
    return {re.search(r"<bdi>([^<]*)</bdi></a>", row)[1]: row for row in rows}  # type: ignore[index]
