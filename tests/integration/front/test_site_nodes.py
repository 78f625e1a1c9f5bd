"""The nodes of a site: added by a code or token that works once, told apart by their tokens, removed one by one."""

import pytest

from fieldpost.core.errors import Conflict, InvalidInput, NotFound
from fieldpost.core.sites.node import SiteNode
from fieldpost.link.codec import decode_as, encode
from fieldpost.link.messages import Ack, Submit
from integration.front.test_site_tokens import a_token, acts, call, join, submit
from support.centre import SITE
from support.front import ADMIN, Front

pytestmark = [pytest.mark.req("DEC-38")]


async def add_node(front: Front, name: str = SITE) -> str:
    """Add a node by a code, enrol it and return its token."""
    invited = (await call(front, "POST", f"/{name}/add-node", {"with_code": True})).json()
    token = a_token()
    assert (await join(front, invited["code"], token)).json() == {"name": name, "node": invited["node"]}
    return token.text


async def test_second_node_enrols_by_its_code_and_its_token_names_it(front: Front) -> None:
    invited = await call(front, "POST", f"/{SITE}/add-node", {"with_code": True})
    assert (invited.status_code, invited.json()["name"], invited.json()["node"]) == (201, SITE, 1)
    code, token = invited.json()["code"], a_token()
    refused = await join(front, code, token, site=SITE, node=0)
    assert (refused.status_code, refused.json()["code"]) == (409, "join.other_node")
    for _ in range(2):  # the first answer was lost
        assert (await join(front, code, token)).json() == {"name": SITE, "node": 1}
    assert (await join(front, code, a_token())).status_code == 401
    assert await front.operate.accounts.by_site_token(token.text) == SiteNode(SITE, 1)
    shown = (await call(front, "GET", f"/{SITE}", caller="viewer")).json()
    assert shown["nodes"] == [0, 1]
    assert {(one["prefix"], one["node"]) for one in shown["tokens"]} >= {(token.prefix, 1)}
    assert {("admin", "site.add_node", SITE), (SITE, "site.join", SITE)} <= set(await acts(front))


async def test_notifications_are_accepted_from_either_node(front: Front) -> None:
    second = await add_node(front)
    item = front.centre.item()
    found = []
    for token in (front.tokens["site"], second, front.tokens["site"]):
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        async with front.client() as client:
            answer = await client.post("/link/v1/submit", content=encode(Submit(1, (item,))), headers=headers)
        found += [result.verdict for result in decode_as(answer.content, Ack).results]
    assert found == ["accepted", "duplicate", "duplicate"]


async def test_third_node_is_refused(front: Front) -> None:
    await add_node(front)
    for body in ({"with_code": True}, {}):
        refused = await call(front, "POST", f"/{SITE}/add-node", body)
        assert (refused.status_code, refused.json()["code"]) == (409, "site.two_nodes")


@pytest.mark.threat(3)
async def test_tokens_are_rotated_and_revoked_one_node_at_a_time(front: Front) -> None:
    first, second = front.tokens["site"], await add_node(front)
    with pytest.raises(InvalidInput, match="has two nodes; node must be 0 or 1"):
        await front.operate.sites.rotate_token(ADMIN, SITE)
    rotated = (await call(front, "POST", f"/{SITE}/rotate-token", {"node": 1, "overlap_s": 0})).json()
    statuses = [(await submit(front, token)).status_code for token in (first, second, rotated["token"])]
    assert statuses == [200, 401, 200]
    removed = await call(front, "POST", f"/{SITE}/remove-node", {"node": 1})
    assert removed.status_code == 200, removed.text
    assert [(await submit(front, token)).status_code for token in (first, rotated["token"])] == [200, 401]
    assert ("admin", "site.remove_node", SITE) in await acts(front)


async def test_first_node_can_be_removed_and_its_number_is_free_again(front: Front) -> None:
    first, second = front.tokens["site"], await add_node(front)
    await front.operate.sites.remove_node(ADMIN, SITE, 0)
    assert [(await submit(front, token)).status_code for token in (first, second)] == [401, 200]
    with pytest.raises(Conflict, match="only node") as last:
        await front.operate.sites.remove_node(ADMIN, SITE, 1)
    assert last.value.code == "site.last_node"
    with pytest.raises(NotFound, match="has no node 0"):
        await front.operate.sites.remove_node(ADMIN, SITE, 0)
    assert (await front.operate.sites.add_node_token(ADMIN, SITE)).node == 0
    assert (await call(front, "GET", f"/{SITE}")).json()["nodes"] == [0, 1]


async def test_code_of_a_removed_node_does_not_work(front: Front) -> None:
    code = (await call(front, "POST", f"/{SITE}/add-node", {"with_code": True})).json()["code"]
    await call(front, "POST", f"/{SITE}/remove-node", {"node": 1})
    assert (await join(front, code, a_token())).status_code == 401


async def test_invalid_nodes_and_sites_are_refused(front: Front) -> None:
    answers = [
        await call(front, "POST", f"/{SITE}/remove-node", {"node": 2}),
        await call(front, "POST", f"/{SITE}/remove-node", {"node": 1}),
        await call(front, "POST", "/nowhere/add-node", {}),
        await call(front, "POST", f"/{SITE}/add-node", {"with_code": True, "valid_s": 0}),
        await call(front, "POST", f"/{SITE}/add-node", {}, caller="operator"),
    ]
    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [
        (422, "site.node"),
        (404, "site.node_unknown"),
        (404, "site.unknown"),
        (422, "site.valid"),
        (403, "access.role"),
    ]
    await front.operate.sites.revoke(ADMIN, SITE)
    refused = await call(front, "POST", f"/{SITE}/add-node", {})
    assert (refused.status_code, refused.json()["code"]) == (409, "site.revoked")
