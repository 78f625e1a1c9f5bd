"""Users and API tokens, as administrators handle them."""

import asyncio
from datetime import timedelta

import pytest

from fieldpost.central.access.tokens import TOKEN_LIFE
from fieldpost.core.actor import Actor, Role
from fieldpost.core.errors import Conflict, Denied, InvalidInput, NotFound
from support.front import ADMIN, OPERATOR, VIEWER, Front

GOOD = "several words of mine"


async def test_user_is_added_logs_in_is_changed_and_removed_with_audit_entries(front: Front) -> None:
    users, logins, accounts = front.operate.users, front.operate.logins, front.operate.accounts
    link = await users.add(ADMIN, "anna", Role.VIEWER)
    assert link.token not in repr(link)
    session = await logins.use_link(link.token, GOOD)
    assert session.actor == Actor("anna", Role.VIEWER)
    seen = await users.get(ADMIN, "anna")
    changed = await users.change(ADMIN, "anna", seen.version, role=Role.OPERATOR)
    assert (changed.role, changed.version) == ("operator", seen.version + 1)
    assert await accounts.by_session(session.token) is None
    await logins.log_in("anna", GOOD)
    await users.remove(ADMIN, "anna")
    with pytest.raises(Denied):
        await logins.log_in("anna", GOOD)
    with pytest.raises(NotFound):
        await users.get(ADMIN, "anna")
    found = await front.centre.rows(
        "select request_summary, actor, target from audit where kind = 'operator_action' order by occurred_at, event_id"
    )
    assert sorted(found) == sorted(
        [
            ("site.add", "admin", "plant-7"),
            ("user.add", "admin", "anna"),
            ("password.set", "anna", "anna"),
            ("session.open", "anna", "anna"),
            ("user.change", "admin", "anna"),
            ("session.open", "anna", "anna"),
            ("user.remove", "admin", "anna"),
        ]
    )


@pytest.mark.threat(12)
@pytest.mark.parametrize("change", ["role", "disabled", "removed", "logged out", "password"])
async def test_change_of_rights_ends_the_sessions_of_the_user(front: Front, change: str) -> None:
    users, logins, accounts = front.operate.users, front.operate.logins, front.operate.accounts
    session = await logins.log_in("operator", front.password("operator"))
    other = await logins.log_in("viewer", front.password("viewer"))
    match change:
        case "role":
            await users.change(ADMIN, "operator", 1, role=Role.VIEWER)
        case "disabled":
            await users.change(ADMIN, "operator", 1, is_disabled=True)
            await users.change(ADMIN, "operator", 2, is_disabled=False)
        case "removed":
            await users.remove(ADMIN, "operator")
        case "logged out":
            assert await users.log_out(ADMIN, "operator") == 1
        case "password":
            await logins.use_link((await users.reset_password(ADMIN, "operator")).token, GOOD)
    assert await accounts.by_session(session.token) is None
    assert await accounts.by_session(other.token) == VIEWER


async def test_disabled_user_has_neither_login_nor_token_until_enabled(front: Front) -> None:
    users, logins, accounts = front.operate.users, front.operate.logins, front.operate.accounts
    await users.change(ADMIN, "viewer", 1, is_disabled=True)
    with pytest.raises(Denied) as refused:
        await logins.log_in("viewer", front.password("viewer"))
    assert refused.value.code == "login.refused", "nobody is told that the password was right"
    assert await accounts.by_api_token(front.tokens["viewer"]) is None
    await users.change(ADMIN, "viewer", 2, is_disabled=False)
    assert await accounts.by_api_token(front.tokens["viewer"]) == VIEWER
    await logins.log_in("viewer", front.password("viewer"))


async def test_concurrent_change_by_another_user_is_a_conflict(front: Front) -> None:
    users = front.operate.users
    await users.change(ADMIN, "viewer", 1, role=Role.OPERATOR)
    with pytest.raises(Conflict) as refused:
        await users.change(ADMIN, "viewer", 1, role=Role.ADMIN)
    assert refused.value.code == "user.changed"
    assert (await users.get(ADMIN, "viewer")).role == "operator"


async def test_last_administrator_remains_after_concurrent_changes(front: Front) -> None:
    users = front.operate.users
    for doing in (
        users.change(ADMIN, "admin", 1, role=Role.VIEWER),
        users.change(ADMIN, "admin", 1, is_disabled=True),
        users.remove(ADMIN, "admin"),
    ):
        with pytest.raises(Conflict) as refused:
            await doing
        assert refused.value.code == "user.last_admin"
    await users.change(ADMIN, "operator", 1, role=Role.ADMIN)
    both = (users.remove(ADMIN, "operator"), users.change(Actor("operator", Role.ADMIN), "admin", 1, role=Role.VIEWER))
    results = await asyncio.gather(*both, return_exceptions=True)
    assert sum(isinstance(result, Conflict) for result in results) == 1
    assert sum(one.role == "admin" for one in await users.all(ADMIN)) == 1


async def test_user_name_is_unique_and_valid(front: Front) -> None:
    with pytest.raises(Conflict) as refused:
        await front.operate.users.add(ADMIN, "viewer", Role.ADMIN)
    assert refused.value.code == "user.exists"
    assert (await front.operate.users.get(ADMIN, "viewer")).role == "viewer"
    with pytest.raises(InvalidInput):
        await front.operate.users.add(ADMIN, "Viewer", Role.ADMIN)


async def test_a_token_acts_for_its_user_until_it_expires_or_is_revoked(front: Front) -> None:
    tokens, accounts = front.operate.tokens, front.operate.accounts
    added = await tokens.add(ADMIN, "erp bridge", Role.VIEWER, owner="operator")
    assert added.token not in repr(added)
    actor = await accounts.by_api_token(added.token)
    assert actor == Actor("operator", Role.VIEWER)
    assert actor is not None
    assert actor.token == "erp bridge"
    with pytest.raises(NotFound):
        await tokens.revoke(VIEWER, added.token_id)
    assert [one.name for one in await tokens.all(OPERATOR) if one.name] == ["erp bridge"]
    assert all(one.owner == "viewer" for one in await tokens.all(VIEWER))
    front.clock.advance(TOKEN_LIFE.total_seconds())
    assert await accounts.by_api_token(added.token) is None

    lasting = await tokens.add(ADMIN, "lasting", Role.OPERATOR, owner="operator", life=None)
    assert lasting.expires_at is None
    await tokens.revoke(OPERATOR, lasting.token_id)
    assert await accounts.by_api_token(lasting.token) is None
    with pytest.raises(NotFound):
        await tokens.revoke(ADMIN, lasting.token_id)


async def test_action_by_a_token_names_user_and_token_in_the_audit(front: Front) -> None:
    added = await front.operate.tokens.add(ADMIN, "deploy", Role.ADMIN)
    actor = await front.operate.accounts.by_api_token(added.token)
    assert actor is not None
    await front.operate.users.add(actor, "anna", Role.VIEWER)
    [(name, extra)] = await front.centre.rows("select actor, extra from audit where request_summary = 'user.add'")
    assert name == "admin"
    assert '"by_token": "deploy"' in str(extra).replace("'", '"')


async def test_token_beyond_the_role_of_its_user_without_user_or_duplicate_is_rejected(front: Front) -> None:
    tokens = front.operate.tokens
    await tokens.add(ADMIN, "mine", Role.VIEWER)
    for code, doing in (
        ("token.role", tokens.add(ADMIN, "much", Role.ADMIN, owner="operator")),
        ("user.unknown", tokens.add(ADMIN, "none", Role.VIEWER, owner="nobody")),
        ("token.exists", tokens.add(ADMIN, "mine", Role.VIEWER)),
        ("token.life", tokens.add(ADMIN, "long", Role.VIEWER, life=timedelta(days=9999))),
        ("text.empty", tokens.add(ADMIN, "", Role.VIEWER)),
    ):
        with pytest.raises((Conflict, NotFound, InvalidInput)) as refused:
            await doing
        assert refused.value.code == code


async def test_users_and_tokens_over_the_api(front: Front) -> None:
    async with front.client("admin") as client:
        added = await client.post("/api/v1/users", json={"name": "anna", "role": "operator"})
        assert added.status_code == 201
        assert added.json()["link"].startswith("/set-password?link=fp_link_")
        assert (await client.get(added.json()["link"])).status_code == 200
        shown = (await client.get("/api/v1/users/anna")).json()
        assert (shown["role"], shown["has_password"], shown["is_disabled"]) == ("operator", False, False)
        assert "hash" not in str((await client.get("/api/v1/users")).json())
        change = {"version": shown["version"], "is_disabled": True}
        assert (await client.patch("/api/v1/users/anna", json=change)).json()["is_disabled"] is True
        assert (await client.patch("/api/v1/users/anna", json=change)).status_code == 409
        bad = await client.patch("/api/v1/users/anna", json={"version": 2, "role": "king"})
        assert (bad.status_code, bad.json()["code"], bad.json()["field"]) == (422, "role.unknown", "role")
        assert (await client.post("/api/v1/users/anna/log-out")).json() == {"sessions": 0}
        assert (await client.post("/api/v1/users/anna/reset-password")).status_code == 201
        assert (await client.delete("/api/v1/users/anna")).status_code == 204
        assert (await client.get("/api/v1/users/anna")).status_code == 404

        made = await client.post("/api/v1/tokens", json={"name": "ci", "role": "viewer", "expires_in_s": 3600})
        token_id, token = made.json()["token_id"], made.json()["token"]
        me = await client.get("/api/v1/me", headers={"authorization": f"Bearer {token}"})
        assert me.json() == {"name": "admin", "role": "viewer", "token": "ci", "subscription_owner": None}
        listed = (await client.get("/api/v1/tokens")).json()["tokens"]
        assert token not in str(listed)
        assert token_id in [one["token_id"] for one in listed]
        assert (await client.delete(f"/api/v1/tokens/{token_id}")).status_code == 204
        assert (await client.get("/api/v1/me", headers={"authorization": f"Bearer {token}"})).status_code == 401


async def test_admin_token_sees_all_sessions_and_ends_those_of_its_owner(front: Front) -> None:
    for name in ("viewer", "admin"):
        await front.operate.logins.log_in(name, front.password(name))
    async with front.client("admin") as admin, front.client("operator") as operator:
        [theirs] = (await admin.get("/api/v1/sessions", params={"user": "viewer"})).json()["sessions"]
        [mine] = (await admin.get("/api/v1/sessions")).json()["sessions"]
        assert (await operator.get("/api/v1/sessions", params={"user": "viewer"})).status_code == 403
        assert (await admin.delete(f"/api/v1/sessions/{theirs['session_id']}")).status_code == 404
        assert (await admin.delete(f"/api/v1/sessions/{mine['session_id']}")).status_code == 204
        assert (await admin.get("/api/v1/sessions")).json()["sessions"] == []


@pytest.mark.threat(34)
@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
async def test_token_of_a_lower_role_cannot_reach_other_tokens_and_sessions_of_its_owner(
    front: Front, role: Role
) -> None:
    """It reads and revokes itself; the owner's other tokens and sessions it neither sees nor ends."""
    session = await front.operate.logins.log_in("admin", front.password("admin"))
    other = await front.operate.tokens.add(ADMIN, "deploy", Role.ADMIN)
    lesser = await front.operate.tokens.add(ADMIN, "dashboard", role)
    front.tokens["dashboard"] = lesser.token
    sessions = await front.operate.logins.sessions(ADMIN)
    async with front.client("dashboard") as client:
        assert [one["name"] for one in (await client.get("/api/v1/tokens")).json()["tokens"]] == ["dashboard"]
        assert (await client.delete(f"/api/v1/tokens/{other.token_id}")).status_code == 404
        assert (await client.get("/api/v1/sessions")).status_code == 403
        assert (await client.delete(f"/api/v1/sessions/{sessions[0].prefix}")).status_code == 403
        assert await front.operate.accounts.by_session(session.token) is not None
        assert await front.operate.accounts.by_api_token(other.token) is not None
        actor = Actor("admin", role, token="dashboard")
        for work in (front.operate.logins.sessions(actor), front.operate.logins.end(actor, sessions[0].prefix)):
            with pytest.raises(Denied) as refused:
                await work
            assert refused.value.code == "access.token"
        assert (await client.delete(f"/api/v1/tokens/{lesser.token_id}")).status_code == 204
        assert (await client.get("/api/v1/tokens")).status_code == 401
