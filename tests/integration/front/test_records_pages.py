"""The pages of what is kept on record: the audit log, users, tokens, and the settings in force; no script runs here."""

import csv
import io
import json
import re
from collections.abc import AsyncIterator

import pytest

from fieldpost.core.actor import Actor, Role
from fieldpost.testing import ManualClock
from support.centre import SITE
from support.front import ADMIN, OPERATOR, Front, open_front
from support.visitor import Visitor, visiting

SECRET = re.compile(r"fp_api_[a-z0-9_]+")


@pytest.fixture
async def front(sqlite_url: str, clock: ManualClock) -> AsyncIterator[Front]:
    async with open_front(sqlite_url, clock) as opened:
        yield opened


@pytest.fixture
async def admin(front: Front) -> AsyncIterator[Visitor]:
    async with visiting(front, "admin") as visitor:
        yield visitor


async def audited(front: Front, act: str) -> list[tuple[str, str | None]]:
    """Who did this act, and on what."""
    page = await front.watch.audit.page(limit=200)
    return [(entry.actor, entry.target) for entry in page.entries if entry.request_summary == act]


# The audit log


async def test_log_shows_actor_and_action_and_links_to_the_target(front: Front) -> None:
    parked = await front.park("550 no such user", body="only for the night shift")
    await front.operate.notifications.discard(OPERATOR, parked, (await front.centre.get(parked)).version)
    async with visiting(front, "viewer") as visitor:
        text = await visitor.look("/audit")
        assert "operator discard" in text
        assert "550 no such user" in text
        assert "night shift" not in visitor.page.text
        assert f'href="/notifications/{parked}"' in visitor.page.text
        assert 'href="/lists/ops"' in visitor.page.text
        assert f'href="/sites/{SITE}"' in visitor.page.text
        errors = await visitor.look("/audit", status="failed,parked,discarded")
        assert "parked" in errors
        assert "notify send" not in errors.partition("Detail")[2]
        assert "You need the role admin to export the audit log; your role is viewer" in errors
        assert "No matching entries" in await visitor.look("/audit", actor="nobody")


async def test_entry_opens_in_place_with_all_its_fields(front: Front) -> None:
    await front.park(script="watch.py", instance="pump-3")
    async with visiting(front, "viewer") as visitor:
        await visitor.look("/audit", kind="notify_send")
        assert "pump-3" not in visitor.text
        (opened,) = re.findall(r'class="open" href="([^"#]*)', visitor.page.text)
        text = await visitor.look(opened.replace("&amp;", "&"))
    assert "source instance id pump-3" in text
    assert "Hide details" in visitor.page.text
    assert "All entries for this id" in text


async def test_pages_of_older_entries_keep_the_filter(front: Front) -> None:
    for _ in range(30):
        await front.deliver()
    async with visiting(front, "viewer") as visitor:
        await visitor.look("/audit", kind="notify_deliver")
        (older,) = re.findall(r'rel="next" href="([^"]*)"', visitor.page.text)
        text = await visitor.look(older.replace("&amp;", "&"))
        assert "kind=notify_deliver" in older
        assert "Newest" in text
        assert "notify send" not in text.partition("Detail")[2]


async def test_invalid_filter_is_reported_at_its_field_and_stays_in_the_form(front: Front) -> None:
    async with visiting(front, "viewer") as visitor:
        text = await visitor.look("/audit", about="12", actor="anna")
        assert visitor.page.status_code == 422
        assert "About must be an id of 36 characters" in text
        assert 'value="12"' in visitor.page.text
        assert 'value="anna"' in visitor.page.text


@pytest.mark.bad_input(56)
async def test_admin_exports_matching_entries_without_a_script(front: Front, admin: Visitor) -> None:
    await front.park(script="=cmd()")
    front.clock.advance(1)
    await admin.look("/audit", kind="notify_send")
    answer = await admin.send("/audit/export", format="csv")
    assert answer.status_code == 200
    assert 'filename="audit-' in answer.headers["content-disposition"]
    head, row, end = csv.reader(io.StringIO(answer.text))
    assert dict(zip(head, row, strict=True))["actor"] == "'=cmd()"
    assert end[0].startswith("# 1 entries")
    await admin.look("/audit", kind="notify_send")
    answer = await admin.send("/audit/export", format="ndjson")
    assert json.loads(answer.text.splitlines()[-1])["exported"] == 1
    assert await audited(front, "audit.export") == [("admin", "audit")] * 2


@pytest.mark.bad_input(57)
@pytest.mark.threat(10)
async def test_export_needs_the_role_and_a_valid_form_token(front: Front, admin: Visitor) -> None:
    assert (await admin.client.post("/audit/export", data={"format": "csv"})).status_code == 403
    assert (await admin.client.get("/audit/export")).status_code == 405
    async with visiting(front, "operator") as visitor:
        await visitor.look("/audit")
        token = re.findall(r'name="csrf" value="([^"]*)"', visitor.page.text)[0]
        answer = await visitor.client.post("/audit/export", data={"csrf": token, "format": "csv"})
    assert (answer.status_code, "needs the role admin" in answer.text) == (403, True)
    assert await audited(front, "audit.export") == []


# Users


async def test_a_user_is_added_and_chooses_a_password_by_the_link_that_is_shown_once(
    front: Front, admin: Visitor
) -> None:
    await admin.look("/users")
    await admin.send("/users", name="kim", role="operator")
    (link,) = re.findall(r'<code class="secret">([^<]*)</code>', admin.page.text)
    assert link.startswith("/set-password?link=")
    await admin.look("/users/kim")
    assert "no password yet" in admin.text
    assert link not in admin.page.text
    assert await audited(front, "user.add") == [("admin", "kim")]
    async with front.client() as client:
        assert (await client.get(link)).status_code == 200


@pytest.mark.parametrize(
    ("name", "role", "says"),
    [
        ("Kim Possible!", "operator", "Name must have 1 to 64 lower-case letters"),
        ("viewer", "operator", "User 'viewer' already exists"),
        ("kim", "king", "Role must be one of"),
    ],
)
async def test_invalid_user_is_reported_at_the_field_with_the_typed_input(
    admin: Visitor, name: str, role: str, says: str
) -> None:
    await admin.look("/users")
    answer = await admin.send("/users", name=name, role=role)
    assert answer.status_code == 422
    assert says in admin.text
    assert f'value="{name}"' in admin.page.text


async def test_role_password_sessions_and_access_of_a_user_are_changed(front: Front, admin: Visitor) -> None:
    await front.operate.logins.log_in("operator", front.password("operator"))
    await admin.look("/users/operator")
    assert "Log out everywhere" in admin.text
    await admin.send("/users/operator/log-out")
    assert "logged out everywhere" in admin.text
    assert "Not logged in" in admin.text
    await admin.send("/users/operator/role", role="viewer")
    assert "Role changed" in admin.text
    await admin.send("/users/operator/disable")
    assert "User disabled" in admin.text
    assert "Create password link is not available: a disabled user cannot log in" in admin.page.text
    await admin.send("/users/operator/enable")
    assert "User enabled" in admin.text
    await admin.send("/users/operator/reset-password")
    assert "shown only once" in admin.text
    user = await front.operate.users.get(ADMIN, "operator")
    assert (user.role, user.disabled_at) == ("viewer", None)


async def test_user_is_removed_after_a_confirmation(front: Front, admin: Visitor) -> None:
    await admin.look("/users/viewer")
    (question,) = re.findall(r'data-dialog href="([^"]*/remove)"', admin.page.text)
    assert "The audit log keeps their actions" in await admin.look(question)
    await admin.send("/users/viewer/remove")
    assert "User removed" in admin.text
    assert "viewer" not in [user.name for user in await front.operate.users.all(ADMIN)]


async def test_last_admin_cannot_be_removed_and_the_page_shows_the_reason(front: Front, admin: Visitor) -> None:
    text = await admin.look("/users/admin")
    assert "Disable is not available: this is the last active administrator" in admin.page.text
    assert "Change role is not available" in admin.page.text
    assert "make another user admin first" in text
    assert 'action="/users/admin/disable"' not in admin.page.text
    assert "the last active administrator" in await admin.look("/users/admin/remove")
    await front.operate.users.add(ADMIN, "other", Role.ADMIN)
    await admin.look("/users/admin/remove")
    await front.operate.users.remove(ADMIN, "other")
    answer = await admin.send("/users/admin/remove")
    assert (answer.status_code, "is the last active administrator" in admin.text) == (409, True)


@pytest.mark.bad_input(55)
async def test_stale_page_changes_nothing_and_shows_present_values(front: Front, admin: Visitor) -> None:
    await admin.look("/users/viewer")
    seen = await front.operate.users.get(ADMIN, "viewer")
    await front.operate.users.change(ADMIN, "viewer", seen.version, role=Role.OPERATOR)
    answer = await admin.send("/users/viewer/role", role="admin")
    assert answer.status_code == 409
    assert "changed by someone else" in admin.text
    assert (await front.operate.users.get(ADMIN, "viewer")).role == "operator"


# Tokens


async def test_token_is_added_for_a_user_and_shown_once_with_its_usage(front: Front, admin: Visitor) -> None:
    await admin.look("/tokens")
    await admin.send("/tokens", name="backup script", owner="operator", role="viewer", life="30")
    (secret,) = set(SECRET.findall(admin.page.text))
    assert "fieldpost login" in admin.text
    assert "Authorization: Bearer" in admin.text
    text = await admin.look("/tokens")
    assert "backup script" in text
    assert secret not in admin.page.text
    async with front.client() as client:
        me = (await client.get("/api/v1/me", headers={"Authorization": f"Bearer {secret}"})).json()
    assert (me["name"], me["role"], me["token"]) == ("operator", "viewer", "backup script")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"name": "", "owner": "admin", "role": "viewer"}, "Name must"),
        (
            {"name": "x", "owner": "viewer", "role": "admin"},
            "Viewer has role viewer, so their token cannot have role admin",
        ),
        ({"name": "x", "owner": "nobody", "role": "viewer"}, "User 'nobody' does not exist"),
        ({"name": "x", "owner": "admin", "role": "viewer", "life": "1000000"}, "one of the offered values"),
    ],
)
async def test_invalid_token_is_reported_at_its_field(admin: Visitor, fields: dict[str, str], says: str) -> None:
    await admin.look("/tokens")
    answer = await admin.send("/tokens", **fields)
    assert answer.status_code == 422
    assert says in admin.text
    assert not SECRET.search(admin.page.text)


async def test_users_see_and_revoke_own_tokens_only(front: Front) -> None:
    own = await front.operate.tokens.add(ADMIN, "wallboard", Role.VIEWER, owner="viewer")
    other = await front.operate.tokens.add(ADMIN, "nightly", Role.ADMIN)
    async with visiting(front, "viewer") as visitor:
        text = await visitor.look("/tokens")
        assert "wallboard" in text
        assert "nightly" not in text
        assert "Add is not available: requires the role admin" in visitor.page.text
        await visitor.look(f"/tokens/{other.token_id}/revoke")
        assert visitor.page.status_code == 404
        assert "lose access immediately" in await visitor.look(f"/tokens/{own.token_id}/revoke")
        await visitor.send(f"/tokens/{own.token_id}/revoke")
        assert "Token revoked" in visitor.text
        token = re.findall(r'name="csrf" value="([^"]*)"', visitor.page.text)[0]
        refused = await visitor.client.post("/tokens", data={"csrf": token, "name": "x", "role": "viewer"})
        assert refused.status_code == 403
        stolen = await visitor.client.post(f"/tokens/{other.token_id}/revoke", data={"csrf": token})
        assert stolen.status_code == 404
    viewer = Actor("viewer", Role.VIEWER)
    assert own.token_id not in [one.prefix for one in await front.operate.tokens.all(viewer)]
    assert other.token_id in [one.prefix for one in await front.operate.tokens.all(ADMIN)]


# Settings


async def test_settings_list_changed_ones_first_and_no_secret(admin: Visitor) -> None:
    text = await admin.look("/settings")
    changed, rest = text.split("[central]")
    assert "dispatch.slots 32 from file /etc/fieldpost/fieldpost.toml 64" in changed
    assert "upkeep.audit_retention_days 90 days" in changed
    assert "secrets.key ***" in changed
    assert "interval_s 10 seconds" in rest
    assert "refresh_s 1 second 1 second" in rest
    assert "canary" not in admin.page.text


async def test_settings_are_searched_by_words_without_a_script(admin: Visitor) -> None:
    text = await admin.look("/settings", q="how long claim")
    assert "lease_s" in text
    assert "audit_retention_days" not in text
    assert "1 of " in text
    assert "No matching settings" in await admin.look("/settings", q="unheard")


@pytest.mark.req("DEC-33")
@pytest.mark.parametrize("path", ["/users", "/users/viewer", "/users/viewer/remove", "/settings"])
async def test_admin_pages_name_the_required_role_to_others(front: Front, path: str) -> None:
    async with visiting(front, "operator") as visitor:
        text = await visitor.look(path)
        assert visitor.page.status_code == 403
        assert "needs the role admin; operator is operator" in text
        await visitor.look("/audit")
        assert 'href="/users"' not in visitor.page.text
        assert 'href="/tokens"' in visitor.page.text
