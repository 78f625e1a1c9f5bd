"""Who may call what: every route as everybody, and every act in the room that does it."""

import re
from dataclasses import fields

import httpx2
import pytest
from starlette.routing import BaseRoute
from structlog.testing import capture_logs

from fieldpost.core.actor import Actor, Role
from fieldpost.core.errors import Denied
from fieldpost.front import receipts
from fieldpost.front.api import routes as api_routes
from fieldpost.front.auth import Access
from fieldpost.front.console.kit.request import PageRoute
from fieldpost.front.console.pages import PAGES, STATIC
from fieldpost.front.http.call import ApiRoute
from fieldpost.front.link import routes as link_routes
from fieldpost.front.link.routes import SOCKETS
from support.actions import all_actions
from support.front import ADMIN, Front

ROUTES = (*api_routes.ROUTES, *link_routes.ROUTES, *receipts.ROUTES)

ID = "0198c8a0-0000-7000-8000-000000000001"
PEOPLE = ("viewer", "operator", "admin", "subscriber")
ROLES = (*PEOPLE, "publisher")
MAY = {
    Access.ANYONE: {"nobody", "site", *ROLES},
    Access.SITE: {"site"},
    Access.JOIN: set(),  # none of these shows a code
    Access.VIEWER: {"viewer", "operator", "admin"},
    Access.OPERATOR: {"operator", "admin"},
    Access.ADMIN: {"admin"},
    Access.SEND: {"operator", "admin", "publisher"},
    Access.READ_OWN: {"viewer", "operator", "admin", "publisher"},
    Access.READ_ROW: {"viewer", "operator", "admin", "publisher", "subscriber"},
    Access.OWNER_READ: {"viewer", "operator", "admin", "subscriber"},
    Access.OWNER_OPERATE: {"operator", "admin", "subscriber"},
    Access.OWNER_CHANGE: {"admin", "subscriber"},
    Access.USER: {"viewer", "operator", "admin", "subscriber"},
}


@pytest.mark.threat(7)
async def test_every_api_route_serves_exactly_its_declared_roles(front: Front) -> None:
    for route in ROUTES:
        for caller in ("nobody", "site", *ROLES):
            async with front.client(None if caller == "nobody" else caller) as client:
                status = (await call(client, route)).status_code
            is_one_of_ours = (caller == "site") == (route.access is Access.SITE) and route.access is not Access.JOIN
            if caller in MAY[route.access]:
                assert status not in (401, 403), (route, caller, status)
            elif caller == "nobody" or not is_one_of_ours:
                assert status == 401, (route, caller, status)
            else:
                assert status == 403, (route, caller, status)


@pytest.mark.threat(7)
async def test_every_page_serves_exactly_its_declared_roles(front: Front) -> None:
    # A stream that is open for as long as somebody listens would never be answered whole.
    front.app.state.backend.change_feed.close()
    for caller in ("nobody", *PEOPLE):
        client, csrf = front.client(), ""
        for page in PAGES:
            if not csrf:
                csrf = await log_in(front, client, caller)
            response = await call(client, page, csrf)
            if page.method == "POST":
                # It may have ended the session, or begun another.
                await client.aclose()
                client, csrf = front.client(), ""
            if caller in MAY[page.access]:
                # The login form answers 401 by itself, to a wrong password.
                assert response.status_code != 403, (page, caller)
                assert response.status_code != 401 or page.path == "/login", (page, caller)
                is_login = response.headers.get("location", "").startswith("/login")
                leads_out = ("/login", "/logout", "/account/log-out-everywhere")
                assert not is_login or page.path in leads_out, (page, caller)
            elif caller == "nobody":
                assert (response.status_code, response.headers["location"][:6]) == (303, "/login"), (page, caller)
            else:
                assert response.status_code == 403, (page, caller)
        await client.aclose()


async def test_an_api_token_opens_no_page(front: Front) -> None:
    async with front.client("admin") as client:
        response = await client.get("/")
    assert (response.status_code, response.headers["location"]) == (303, "/login")


@pytest.mark.req("DEC-63")
async def test_only_declared_routes_are_reachable(front: Front) -> None:
    reachable = sorted(path_of(route) for route in front.app.router.routes)
    assert reachable == sorted([*(r.path for r in ROUTES), *(p.path for p in PAGES), *SOCKETS, STATIC])
    anyone = {route.path for route in (*ROUTES, *PAGES) if route.access is Access.ANYONE}
    logins = {"/login", "/login/oidc", "/login/oidc/callback", "/set-password"}
    assert anyone == {"/healthz", "/readyz", receipts.PATH, *logins}


OPERATORS_NOUNS = {"notification", "bulk", "breaker", "intent"}
"""Operators act on these; everything else is for administrators."""
OPERATORS_ACTIONS = {"subscription.recover"}
"""Sends again what exists, and changes no subscription."""
SUBSCRIBERS_ACTIONS = {"notification.resend", "bulk.cancel", "breaker.reset"}
"""Subscribers may do these, and all that begins with `subscription.`, on the subscriptions of their owner."""
ON_ONES_OWN = {"TokenActions.all", "TokenActions.revoke", "Users.sessions"}
"""Actions that need no role: without one they reach only what is the actor's own."""


def test_every_action_requires_the_role_of_its_noun() -> None:
    actions = all_actions()
    assert len(actions) >= 30
    assert {str(action) for action in actions if action.role is None} == ON_ONES_OWN
    for action in actions:
        if action.name is not None:
            noun = action.name.partition(".")[0]
            is_operators = noun in OPERATORS_NOUNS or action.name in OPERATORS_ACTIONS
            assert action.role is (Role.OPERATOR if is_operators else Role.ADMIN), str(action)
            is_subscribers = noun == "subscription" or action.name in SUBSCRIBERS_ACTIONS
            assert action.others == ((Role.SUBSCRIBER,) if is_subscribers else ()), str(action)


@pytest.mark.threat(7)
@pytest.mark.parametrize("role", [Role.PUBLISHER, Role.SUBSCRIBER, Role.VIEWER, Role.OPERATOR])
async def test_actions_refuse_actors_without_the_role_and_log_it(front: Front, role: Role) -> None:
    actor = Actor("someone", role)
    parts = {type(getattr(front.operate, one.name)): getattr(front.operate, one.name) for one in fields(front.operate)}
    for action in all_actions():
        if action.role is None or action.is_for(role):
            continue
        with capture_logs() as logs, pytest.raises(Denied) as refused:
            await action.call(parts[action.kind], actor)
        assert refused.value.code == "access.role", str(action)
        (line,) = logs
        assert (line["event"], line["actor"]) == ("action.denied", "someone")
        assert line["action"].startswith(action.name), str(action)


async def test_admin_has_all_rights_of_an_operator(front: Front) -> None:
    parked = await front.park()
    changed = await front.operate.notifications.retry(ADMIN, parked, (await front.centre.get(parked)).version)
    assert changed.status == "pending"


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ([], 401, "auth.required"),
        ([("authorization", "")], 401, "auth.required"),
        ([("authorization", "Bearer")], 401, "auth.required"),
        ([("authorization", "Basic YTpi")], 401, "auth.required"),
        ([("authorization", "Bearer nonsense")], 401, "auth.invalid"),
        ([("authorization", "Bearer fp_api_aaaaaaaaaaaa_bbbb")], 401, "auth.invalid"),
        ([("authorization", "Bearer " + "x" * 5000)], 401, "auth.invalid"),
        ([("authorization", "Bearer a"), ("authorization", "Bearer b")], 400, "http.authorization"),
    ],
)
async def test_a_wrong_authorization_is_refused(
    front: Front, headers: list[tuple[str, str]], status: int, code: str
) -> None:
    async with front.client() as client:
        response = await client.get("/api/v1/lists", headers=headers)
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert ("www-authenticate" in response.headers) == (status == 401)


async def call(client: httpx2.AsyncClient, route: ApiRoute | PageRoute, csrf: str = "") -> httpx2.Response:
    path = re.sub(r"\{[^}]*\}", ID, route.path)
    if route.method == "GET":
        return await client.get(path)
    if isinstance(route, PageRoute):
        return await client.request(route.method, path, data={"csrf": csrf, "version": "1"})
    return await client.request(route.method, path, json={})


async def log_in(front: Front, client: httpx2.AsyncClient, name: str) -> str:
    """Log in unless as nobody; the token for forms either way."""
    csrf = token_in(await client.get("/login"))
    if name == "nobody":
        return csrf
    form = {"csrf": csrf, "name": name, "password": front.password(name)}
    assert (await client.post("/login", data=form)).status_code == 303
    return token_in(await client.get("/account"))


def token_in(page: httpx2.Response) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page.text)
    assert found, page.text
    return found[1]


def path_of(route: BaseRoute) -> str:
    return str(getattr(route, "path"))  # noqa: B009
