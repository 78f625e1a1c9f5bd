"""The role publisher: applications send and read their own, and nothing else; rotation keeps their name."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from sqlalchemy.exc import IntegrityError

from fieldpost.central.store.accounts import identities
from fieldpost.core.actor import Role
from fieldpost.core.errors import Conflict, InvalidInput, NotFound
from fieldpost.core.ids import derived_id
from fieldpost.front.api.routes import ROUTES
from fieldpost.front.auth import Access
from support.front import ADMIN, Front

PATH = "/api/v1/notifications"
EVENTS = "/api/v1/events"
ID = "0198c8a0-0000-7000-8000-00000000000{n}"
OWN_ROUTES = {
    ("GET", PATH),
    ("POST", PATH),
    ("POST", f"{PATH}/batch"),
    ("GET", f"{PATH}/{{notification_id}}"),
    ("GET", EVENTS),
    ("POST", EVENTS),
    ("GET", f"{EVENTS}/{{event_id}}"),
    ("GET", "/api/v1/event-results"),
    ("POST", "/api/v1/event-results"),
    ("PUT", "/api/v1/outbox"),
}


def notification(n: int, **more: Any) -> dict[str, Any]:
    return {"notification_id": ID.format(n=n), "list_name": "ops", "subject": "Order 7", "body": "is late", **more}


async def add_publisher(front: Front, name: str, **more: Any) -> str:
    """The token of an application, by which `front.client(name)` calls."""
    added = await front.operate.tokens.add(ADMIN, name, Role.PUBLISHER, owner="viewer", **more)
    front.tokens[name] = added.token
    return added.token_id


@pytest.mark.req("DEC-51")
async def test_a_publisher_may_call_the_routes_of_its_own_notifications_and_events_only(front: Front) -> None:
    allowed = {(r.method, r.path) for r in ROUTES if Role.PUBLISHER in (r.access.roles if r.access in GUARDED else ())}
    assert allowed == OWN_ROUTES
    async with front.client("publisher") as client:
        for route in ROUTES:
            if route.access not in GUARDED or (route.method, route.path) in OWN_ROUTES:
                continue
            answer = await client.request(route.method, route.path.replace("{", "").replace("}", ""))
            assert (answer.status_code, answer.json()["code"]) == (403, "access.role"), route


GUARDED = tuple(access for access in Access if access not in (Access.ANYONE, Access.SITE, Access.JOIN))


@pytest.mark.req("DEC-51")
async def test_a_publisher_sends_and_reads_its_own_and_no_other(front: Front) -> None:
    await add_publisher(front, "shop")
    await add_publisher(front, "bank")
    async with front.client("shop") as shop, front.client("bank") as bank:
        assert (await shop.post(PATH, json=notification(1))).status_code == 201
        assert (await bank.post(f"{PATH}/batch", json={"notifications": [notification(2)]})).status_code == 200
        for client, own, other in ((shop, 1, 2), (bank, 2, 1)):
            listed = (await client.get(PATH)).json()["notifications"]
            assert [one["notification_id"] for one in listed] == [ID.format(n=own)]
            shown = await client.get(f"{PATH}/{ID.format(n=own)}")
            assert (shown.status_code, shown.json()["body"]) == (200, None)
            assert (await client.get(f"{PATH}/{ID.format(n=other)}")).status_code == 404
        of_others = await shop.get(PATH, params={"site": "app:bank"})
        assert (of_others.status_code, of_others.json()["code"]) == (403, "access.own")
        assert len((await shop.get(PATH, params={"site": "app:shop"})).json()["notifications"]) == 1


@pytest.mark.req("DEC-51")
async def test_after_rotation_the_second_token_owns_what_the_first_one_sent(front: Front) -> None:
    await add_publisher(front, "shop", life=timedelta(days=7))
    key = {"Idempotency-Key": "order-7"}
    plain = {name: value for name, value in notification(1).items() if name != "notification_id"}
    async with front.client("shop") as first:
        assert (await first.post(PATH, json=plain, headers=key)).status_code == 201
        rotated = await front.operate.tokens.rotate(ADMIN, "shop", overlap=timedelta(hours=1))
        assert (rotated.name, rotated.owner, rotated.role) == ("shop", "viewer", Role.PUBLISHER)
        assert rotated.expires_at == front.clock.now() + timedelta(days=7), "as long as the former one's life"
        front.tokens["second"] = rotated.token
        async with front.client("second") as second:
            again = await second.post(PATH, json=plain, headers=key)
            assert (again.status_code, again.json()["verdict"]) == (200, "duplicate")
            assert len((await second.get(PATH)).json()["notifications"]) == 1
            assert (await second.get("/api/v1/health")).status_code == 403
            assert (await first.get(PATH)).status_code == 200, "the overlap lasts"
            front.clock.advance(3600)
            assert (await first.get(PATH)).status_code == 401, "the overlap is over"
            assert (await second.get(PATH)).status_code == 200


@pytest.mark.parametrize("end", ["expire", "revoke"])
async def test_a_token_that_ended_can_be_rotated_and_stays_ended(front: Front, end: str) -> None:
    token_id = await add_publisher(front, "shop", life=timedelta(days=1))
    if end == "expire":
        front.clock.advance(2 * 86400)
    else:
        await front.operate.tokens.revoke(ADMIN, token_id)
    async with front.client("admin") as admin:
        made = await admin.post("/api/v1/tokens/shop/rotate", json={"overlap_s": 60})
    assert made.status_code == 201
    async with front.client("shop") as first:
        assert (await first.get(PATH)).status_code == 401
        headers = {"authorization": f"Bearer {made.json()['token']}"}
        assert (await first.get(PATH, headers=headers)).status_code == 200


async def test_rotation_refuses_an_unknown_name_and_values_out_of_range(front: Front) -> None:
    await add_publisher(front, "shop")
    async with front.client("admin") as admin:
        for name, body, status, code in (
            ("nobody", {}, 404, "token.unknown"),
            ("shop", {"overlap_s": -1}, 422, "token.overlap"),
            ("shop", {"overlap_s": 1e300}, 422, "token.overlap"),
            ("shop", {"expires_in_s": 0}, 422, "token.life"),
        ):
            answer = await admin.post(f"/api/v1/tokens/{name}/rotate", json=body)
            assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.req("DEC-51")
@pytest.mark.threat(33)
async def test_token_name_is_never_reused_by_any_owner(front: Front) -> None:
    token_id = await add_publisher(front, "shop")
    await front.operate.tokens.revoke(ADMIN, token_id)
    for owner in ("viewer", "operator"):
        with pytest.raises(Conflict) as refused:
            await front.operate.tokens.add(ADMIN, "shop", Role.VIEWER, owner=owner)
        assert refused.value.code == "token.exists"
    [former] = await front.centre.store.read(identities.named_tokens, "shop")
    with pytest.raises(IntegrityError):
        await front.centre.store.write(identities.add_token, replace(former, prefix="another"))
    with pytest.raises(InvalidInput) as too_long:
        await front.operate.tokens.add(ADMIN, "x" * 253, Role.VIEWER)
    assert too_long.value.field == "name", "two long names must not share their source"


async def test_a_removed_users_token_name_stays_taken_and_is_not_rotated(front: Front) -> None:
    await front.operate.tokens.add(ADMIN, "shop", Role.PUBLISHER, owner="operator")
    await front.operate.users.remove(ADMIN, "operator")
    with pytest.raises(NotFound):
        await front.operate.tokens.rotate(ADMIN, "shop")
    with pytest.raises(Conflict):
        await front.operate.tokens.add(ADMIN, "shop", Role.PUBLISHER)


async def test_a_user_cannot_have_the_role_publisher(front: Front) -> None:
    async with front.client("admin") as admin:
        refused = await admin.post("/api/v1/users", json={"name": "anna", "role": "publisher"})
    assert (refused.status_code, refused.json()["code"]) == (422, "role.unknown")


@pytest.mark.threat(33)
async def test_a_sender_cannot_claim_an_id_that_central_derives(front: Front) -> None:
    """An id derived from an Idempotency-Key is computable: a site could take it first."""
    await add_publisher(front, "shop")
    computed = derived_id("app:shop", "order-7")
    plain = {"list_name": "ops", "subject": "Order 7", "body": "is late"}
    async with front.client("site") as site, front.client("shop") as shop:
        frame = {"t": "submit", "seq": 1, "items": [{"notification_id": computed, **plain}]}
        (by_link,) = (await post_link(site, frame)).json()["results"]
        assert (by_link["verdict"], by_link["code"]) == ("rejected", "notification.bad_id")
        by_api = await shop.post(PATH, json={"notification_id": computed, **plain})
        assert (by_api.status_code, by_api.json()["field"]) == (422, "notification_id")
        sent = await shop.post(PATH, json=plain, headers={"Idempotency-Key": "order-7"})
        assert (sent.status_code, sent.json()["notification_id"]) == (201, computed)


async def post_link(site: httpx2.AsyncClient, frame: dict[str, Any]) -> httpx2.Response:
    return await site.post("/link/v1/submit", json=frame)
