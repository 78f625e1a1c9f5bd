"""Sites as citizens: invited, joined by a code that is good once, given new tokens, revoked and taken back."""

import asyncio
import os
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from fieldpost.central.operate.sites import Claimant
from fieldpost.core.errors import Conflict, Denied
from fieldpost.core.notification import Status
from fieldpost.core.sites.node import SiteNode
from fieldpost.link import credentials
from fieldpost.link.codec import decode_as, encode
from fieldpost.link.credentials import IssuedToken
from fieldpost.link.messages import Ack, Submit
from fieldpost.testing import ManualClock
from support.centre import SITE
from support.front import ADMIN, OPERATOR, Front

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


def a_token() -> IssuedToken:
    return credentials.issue("site", os.urandom(credentials.ENTROPY_BYTES))


async def call(front: Front, method: str, path: str, body: object = None, caller: str = "admin") -> httpx2.Response:
    async with front.client(caller) as client:
        return await client.request(method, f"/api/v1/sites{path}", json=body)


async def invite(front: Front, name: str = "north", **more: Any) -> dict[str, Any]:
    answer = await call(front, "POST", "", {"name": name, "with_code": True, **more})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def join(front: Front, code: str, token: IssuedToken, **more: Any) -> httpx2.Response:
    body = {"prefix": token.prefix, "digest": token.digest.hex(), **more}
    async with front.client() as client:
        return await client.post("/link/v1/join", json=body, headers={"Authorization": f"Bearer {code}"})


async def submit(front: Front, token: str) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    async with front.client() as client:
        return await client.post("/link/v1/submit", content=encode(Submit(1, (front.centre.item(),))), headers=headers)


async def acts(front: Front) -> list[tuple[str, str, str]]:
    """What the audit tells of sites: who did what to which."""

    def look(conn: Any) -> list[tuple[str, str, str]]:
        query = "select actor, request_summary, target from audit where request_summary like 'site.%' order by event_id"
        return [tuple(row) for row in conn.exec_driver_sql(query)]

    return await front.centre.store.read(look)


@pytest.mark.threat(14)
async def test_a_site_joins_by_its_code_and_no_token_is_shown_or_stored(front: Front, clock: ManualClock) -> None:
    invited = await invite(front)
    assert set(invited) == {"name", "node", "code", "expires_at"}
    token = a_token()
    answer = await join(front, invited["code"], token)
    assert (answer.status_code, answer.json()) == (200, {"name": "north"})
    ack = decode_as((await submit(front, token.text)).content, Ack)
    assert [result.verdict for result in ack.results] == ["accepted"]
    clock.advance(1)
    shown = (await call(front, "GET", "/north", caller="viewer")).json()
    assert [(one["prefix"], one["is_valid"]) for one in shown["tokens"]] == [(token.prefix, True)]
    assert shown["enrolments"] == []
    assert token.text not in str(shown)
    assert {("admin", "site.add", "north"), ("north", "site.join", "north")} <= set(await acts(front))


@pytest.mark.threat(3, 14)
async def test_code_is_valid_once_and_a_repetition_with_the_same_token_is_accepted(front: Front) -> None:
    code = (await invite(front))["code"]
    first, second = a_token(), a_token()
    assert (await join(front, code, first)).status_code == 200
    assert (await join(front, code, first)).status_code == 200, "its answer was lost, and it asks again"
    refused = await join(front, code, second)
    assert (refused.status_code, refused.json()["code"]) == (401, "auth.code")
    assert (await submit(front, second.text)).status_code == 401
    assert len((await call(front, "GET", "/north")).json()["tokens"]) == 1


async def test_one_of_two_concurrent_uses_of_a_code_wins(front: Front) -> None:
    code = (await invite(front))["code"]
    found = await asyncio.gather(*(join(front, code, a_token()) for _ in range(5)))
    assert sorted(answer.status_code for answer in found) == [200, 401, 401, 401, 401]


@pytest.mark.threat(14)
async def test_every_invalid_code_has_the_same_answer(front: Front, clock: ManualClock) -> None:
    code = (await invite(front, valid_s=HOUR_S))["code"]
    replaced = (await invite(front, "south"))["code"]
    await call(front, "POST", "/south/rotate-token", {"with_code": True})
    other_kind = front.tokens["site"]
    wrong = code[:-1] + ("a" if code[-1] != "a" else "b")
    told = [(await join(front, text, a_token())).json() for text in (wrong, replaced, other_kind, "fp_join_x_y", "x")]
    clock.advance(HOUR_S)
    told.append((await join(front, code, a_token())).json())
    assert {(one["status"], one["code"], one["detail"]) for one in told} == {
        (401, "auth.code", "the code is not valid: it is wrong, used, replaced or expired")
    }
    async with front.client() as client:
        assert (await client.post("/link/v1/join", json={})).status_code == 401


async def test_request_of_a_joining_site_is_checked(front: Front) -> None:
    code, token = (await invite(front))["code"], a_token()
    for change, field in (
        ({"prefix": "short"}, "prefix"),
        ({"prefix": "A" * 12}, "prefix"),
        ({"digest": "00"}, "digest"),
        ({"digest": "Z" * 64}, "digest"),
        ({"role": "admin"}, "role"),
    ):
        answer = await join(front, code, token, **change)
        assert (answer.status_code, answer.json()["field"]) == (422, field), change
    taken = await join(front, code, credentials.of_text(front.tokens["site"]))
    assert taken.status_code == 409, "a token is one site's"
    assert (await join(front, code, token)).status_code == 200, "nothing of that used the code up"


@pytest.mark.threat(1)
async def test_code_of_another_site_is_reported_and_not_used_up(front: Front) -> None:
    code, token = (await invite(front))["code"], a_token()
    answer = await join(front, code, token, site="south")
    assert (answer.status_code, answer.json()["code"]) == (409, "join.other_site")
    assert (await join(front, code, token, site="north")).status_code == 200


async def test_rotated_token_is_valid_for_the_overlap_and_no_longer(front: Front, clock: ManualClock) -> None:
    old = front.tokens["site"]
    code = (await call(front, "POST", f"/{SITE}/rotate-token", {"with_code": True})).json()["code"]
    new = a_token()
    assert (await join(front, code, new)).status_code == 200
    for _ in range(2):
        assert [(await submit(front, token)).status_code for token in (old, new.text)] == [200, 200]
        clock.advance(DAY_S / 2 - 1)
    clock.advance(2)
    refused = await submit(front, old)
    assert (refused.status_code, refused.json()["code"]) == (401, "auth.revoked")
    assert "replaced" in refused.json()["detail"]
    assert (await submit(front, new.text)).status_code == 200
    assert ("admin", "site.rotate", SITE) in await acts(front)


async def test_a_rotation_at_once_ends_the_old_token_at_once(front: Front) -> None:
    answer = await call(front, "POST", f"/{SITE}/rotate-token", {"overlap_s": 0})
    assert (await submit(front, front.tokens["site"])).status_code == 401
    assert (await submit(front, answer.json()["token"])).status_code == 200


async def test_second_rotation_does_not_extend_the_overlap_of_the_first(front: Front, clock: ManualClock) -> None:
    await call(front, "POST", f"/{SITE}/rotate-token", {"overlap_s": 60})
    await call(front, "POST", f"/{SITE}/rotate-token", {"overlap_s": DAY_S})
    clock.advance(61)
    assert (await submit(front, front.tokens["site"])).status_code == 401


@pytest.mark.threat(3)
async def test_revoked_site_is_rejected_with_the_reason_and_the_others_continue(front: Front) -> None:
    """Its rows stay, and can be managed."""
    other = (await call(front, "POST", "", {"name": "south"})).json()["token"]
    parked = await front.park()
    answer = await call(front, "POST", f"/{SITE}/revoke", {})
    assert (answer.status_code, answer.json()["revoked_at"] is not None) == (200, True)
    refused = await submit(front, front.tokens["site"])
    assert (refused.status_code, refused.json()["code"]) == (401, "auth.revoked")
    assert SITE in refused.json()["detail"]
    assert (await submit(front, other)).status_code == 200
    async with front.client("operator") as client:
        listed = (await client.get("/api/v1/notifications", params={"site": SITE})).json()
        version = listed["notifications"][0]["version"]
        retried = await client.post(f"/api/v1/notifications/{parked}/retry", json={"version": version})
    assert retried.status_code == 200
    await front.centre.deliver()
    assert (await front.centre.get(parked)).status is Status.DELIVERED
    again = await call(front, "POST", f"/{SITE}/revoke", {})
    assert again.json() == answer.json(), "once more changes nothing"
    assert (await acts(front)).count(("admin", "site.revoke", SITE)) == 1


async def test_open_code_of_a_revoked_site_is_invalid(front: Front) -> None:
    code = (await invite(front))["code"]
    await call(front, "POST", "/north/revoke", {})
    assert (await join(front, code, a_token())).status_code == 401


async def test_revoked_site_is_readmitted_by_a_new_token_and_old_ones_stay_invalid(front: Front) -> None:
    await call(front, "POST", f"/{SITE}/revoke", {})
    new = (await call(front, "POST", f"/{SITE}/rotate-token", {})).json()["token"]
    assert (await submit(front, new)).status_code == 200
    assert (await submit(front, front.tokens["site"])).json()["code"] == "auth.revoked"
    shown = {one["name"]: one["revoked_at"] for one in (await call(front, "GET", "")).json()["sites"]}
    assert shown == {SITE: None}


async def test_unknown_sites_are_not_found_and_invalid_values_rejected(front: Front) -> None:
    for method, path in (("GET", "/x"), ("POST", "/x/rotate-token"), ("POST", "/x/revoke"), ("GET", "/%00")):
        answer = await call(front, method, path, {} if method == "POST" else None)
        assert (answer.status_code, answer.json()["code"]) == (404, "site.unknown"), path
    for path, body, field in (
        ("", {"name": ".."}, "name"),
        ("", {"name": ".", "with_code": True}, "name"),
        ("", {"name": "y", "with_code": True, "valid_s": 0}, "valid_s"),
        ("", {"name": "y", "with_code": True, "valid_s": 1e300}, "valid_s"),
        (f"/{SITE}/rotate-token", {"overlap_s": -1}, "overlap_s"),
        (f"/{SITE}/rotate-token", {"overlap_s": 31 * DAY_S}, "overlap_s"),
        (f"/{SITE}/rotate-token", {"with_code": True, "valid_s": 31 * DAY_S}, "valid_s"),
    ):
        answer = await call(front, "POST", path, body)
        assert (answer.status_code, answer.json()["field"]) == (422, field), body


@pytest.mark.threat(7)
async def test_only_an_administrator_invites_rotates_and_revokes(front: Front) -> None:
    sites = front.operate.sites
    for act in (
        sites.invite(OPERATOR, "north"),
        sites.rotate(OPERATOR, SITE),
        sites.rotate_token(OPERATOR, SITE),
        sites.revoke(OPERATOR, SITE),
    ):
        with pytest.raises(Denied):
            await act


async def test_joining_works_the_same_without_http(front: Front) -> None:
    invitation = await front.operate.sites.invite(ADMIN, "north", timedelta(minutes=5))
    token = a_token()
    claimant = Claimant(token.prefix, token.digest)
    assert await front.operate.sites.join(invitation.code, claimant) == SiteNode("north")
    with pytest.raises(Conflict):
        await front.operate.sites.invite(ADMIN, "north")
    assert await front.operate.accounts.by_site_token(token.text) == SiteNode("north")
    assert "fp_join" not in repr(invitation)
