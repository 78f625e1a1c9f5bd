"""Clients of the ZGW API: added, rotated, revoked and listed by API and console; their tokens verified."""

import json
from datetime import timedelta
from typing import Any

import pytest

from fieldpost.central.operate.zgw.clients import RefusedToken
from fieldpost.core.actor import Role
from fieldpost.core.errors import Conflict, Denied, InvalidInput, NotFound
from support.front import ADMIN, Front
from support.visitor import visiting
from support.zgw import token

PATH = "/api/v1/zgw-clients"
LONG = "a secret of the application, long enough"


async def by_token(front: Front, client_id: str, secret: str) -> str:
    """The client that such a token of this moment is accepted for."""
    return (await front.operate.zgw_clients.by_token(token(client_id, secret, front.clock.now()))).client_id


@pytest.mark.req("ZGW-10")
async def test_a_generated_secret_is_shown_once_and_verifies_tokens(front: Front) -> None:
    async with front.client("admin") as client:
        added = await client.post(PATH, json={"client_id": "open-zaak", "scopes": ["notificaties.publiceren"]})
        assert added.status_code == 201, added.text
        listed = (await client.get(PATH)).json()["clients"]
    secret = added.json()["secret"]
    assert added.json()["warning"] is None
    assert [(one["client_id"], one["scopes"], one["last_used_at"]) for one in listed] == [
        ("open-zaak", ["publiceren"], None)
    ]
    assert secret not in json.dumps(listed)
    assert await by_token(front, "open-zaak", secret) == "open-zaak"
    (used,) = await front.operate.zgw_clients.all()
    assert used.last_used_at == front.clock.now()


@pytest.mark.req("ZGW-10")
async def test_after_a_rotation_both_secrets_are_valid_for_a_day(front: Front) -> None:
    await front.operate.zgw_clients.add(ADMIN, "open-zaak", ["publiceren"], secret=LONG)
    async with front.client("admin") as client:
        rotated = (await client.post(f"{PATH}/open-zaak/rotate", json={})).json()["secret"]
    front.clock.advance(timedelta(hours=23, minutes=59).total_seconds())
    assert await by_token(front, "open-zaak", LONG) == await by_token(front, "open-zaak", rotated)
    front.clock.advance(60)
    assert await by_token(front, "open-zaak", rotated)
    with pytest.raises(RefusedToken):
        await by_token(front, "open-zaak", LONG)


@pytest.mark.req("ZGW-10")
async def test_unknown_revoked_and_forged_tokens_get_one_answer_and_three_audit_codes(front: Front) -> None:
    clients = front.operate.zgw_clients
    for name in ("open-zaak", "gone"):
        await clients.add(ADMIN, name, ["publiceren"], secret=LONG)
    async with front.client("admin") as client:
        assert (await client.post(f"{PATH}/gone/revoke")).json()["revoked_at"] is not None
    answers, noted = set(), []
    for client_id, secret in (("open-zaak", "another"), ("gone", LONG), ("never-seen", LONG)):
        with pytest.raises(RefusedToken) as refused:
            await by_token(front, client_id, secret)
        answers.add((refused.value.code, refused.value.message))
        noted.append(refused.value.audit_code)
    assert len(answers) == 1
    assert noted == ["wrong-signature", "revoked", "unknown-client"]


async def test_a_revoked_client_can_be_added_again_and_an_active_one_cannot(front: Front) -> None:
    clients = front.operate.zgw_clients
    await clients.add(ADMIN, "open-zaak", ["publiceren"], secret=LONG)
    with pytest.raises(Conflict, match="already exists"):
        await clients.add(ADMIN, "open-zaak", ["consumeren"])
    await clients.revoke(ADMIN, "open-zaak")
    with pytest.raises(Conflict, match="is revoked"):
        await clients.rotate(ADMIN, "open-zaak")
    shown = await clients.add(ADMIN, "open-zaak", ["consumeren"])
    assert shown.secret is not None
    assert await by_token(front, "open-zaak", shown.secret.reveal())
    with pytest.raises(Denied):
        await by_token(front, "open-zaak", LONG)


async def test_a_short_secret_is_accepted_with_a_warning(front: Front) -> None:
    shown = await front.operate.zgw_clients.add(ADMIN, "oud", ["publiceren"], secret="kort")
    assert shown.secret is None
    assert shown.warning is not None
    assert "4 bytes" in shown.warning
    assert await by_token(front, "oud", "kort")


BAD: tuple[tuple[dict[str, Any], str], ...] = (
    ({"client_id": ""}, "client_id"),
    ({"client_id": ".."}, "client_id"),
    ({"client_id": "a*b"}, "client_id"),
    ({"client_id": "x" * 129}, "client_id"),
    ({"client_id": "line\nbreak"}, "client_id"),
    ({"scopes": []}, "scopes"),
    ({"scopes": ["schrijven"]}, "scopes"),
    ({"kanalen": ["za ken"]}, "kanalen"),
    ({"kanalen": ["k"] * 1001}, "kanalen"),
    ({"secret": "x" * 4097}, "secret"),
    ({"secret": ""}, "secret"),
)


@pytest.mark.parametrize(("wrong", "field"), BAD)
async def test_invalid_values_are_rejected_by_name(front: Front, wrong: dict[str, Any], field: str) -> None:
    async with front.client("admin") as client:
        answer = await client.post(PATH, json={"client_id": "a", "scopes": ["publiceren"], **wrong})
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    assert await front.operate.zgw_clients.all() == []


async def test_only_administrators_reach_clients(front: Front) -> None:
    async with front.client("operator") as client:
        assert (await client.get(PATH)).status_code == 403
        assert (await client.post(PATH, json={"client_id": "a", "scopes": ["publiceren"]})).status_code == 403
    with pytest.raises(NotFound):
        await front.operate.zgw_clients.get("nobody")
    with pytest.raises(InvalidInput, match="zgw:"):
        await front.operate.tokens.add(ADMIN, "zgw:open-zaak", Role.PUBLISHER)


async def test_the_page_adds_rotates_and_revokes(front: Front) -> None:
    async with visiting(front, "admin") as visitor:
        assert "No ZGW clients yet" in await visitor.look("/zgw-clients")
        await visitor.send(
            "/zgw-clients", client_id="open-zaak", scopes="publiceren", kanalen="zaken", client_secret="kort"
        )
        assert "tokens signed with fewer than 32 can be guessed offline" in visitor.text
        assert "kort" not in visitor.page.text
        await visitor.look("/zgw-clients/open-zaak/rotate")
        await visitor.send("/zgw-clients/open-zaak/rotate")
        assert "The secret is shown only once" in visitor.text
        secret = visitor.page.text.partition('<code class="secret">')[2].partition("<")[0]
        assert await by_token(front, "open-zaak", secret)
        assert await by_token(front, "open-zaak", "kort")
        assert secret not in await visitor.look("/zgw-clients")
        await visitor.look("/zgw-clients/open-zaak/revoke")
        await visitor.send("/zgw-clients/open-zaak/revoke")
        assert "revoked" in visitor.text
        await visitor.send("/zgw-clients", client_id="a b*", scopes="publiceren", client_secret="canary-of-the-form")
        assert "must not contain *" in visitor.text, visitor.text
        assert "canary-of-the-form" not in visitor.page.text
