"""The Host header decides nothing that people copy: a forged one would send their tokens elsewhere."""

import pytest

from fieldpost.front.app import create_app
from fieldpost.front.options import FrontOptions
from support.front import Front
from support.visitor import visiting

pytestmark = [pytest.mark.threat(10), pytest.mark.bad_input(54)]
EVIL = {"Host": "evil.example"}


async def test_commands_have_a_placeholder_unless_the_host_is_this_machine(front: Front) -> None:
    parked = await front.park()
    async with visiting(front, "operator") as visitor:
        path = f"/notifications/{parked}"
        page = (await visitor.client.get(path, headers=EVIL)).text
        assert "evil.example" not in page
        assert f"curl -H &#34;Authorization: Bearer $FIELDPOST_TOKEN&#34; https://CENTRAL/api/v1{path}" in page
        assert "front.public_url" in page
        for host in ("127.0.0.1:8025", "localhost:8025", "console.localhost"):
            page = (await visitor.client.get(path, headers={"Host": host})).text
            assert f"http://{host}/api/v1{path}" in page
            assert "CENTRAL" not in page


async def test_the_address_that_the_request_came_to_is_ours(front: Front) -> None:
    parked = await front.park()
    async with front.client(url="http://192.0.2.10") as client, visiting(front, "operator") as visitor:
        client.cookies.update({name: visitor.client.cookies[name] for name in visitor.client.cookies})
        page = (await client.get(f"/notifications/{parked}")).text
        assert "http://192.0.2.10/api/v1/" in page


async def test_an_invitation_needs_a_url_that_is_known_or_given(front: Front) -> None:
    async with visiting(front, "admin") as visitor:
        visitor.page = await visitor.client.get("/sites", headers=EVIL)
        assert "evil.example" not in visitor.page.text
        visitor.client.headers.update(EVIL)
        refused = await visitor.send("/sites", name="north", central="")
        assert refused.status_code == 422
        assert "must be a url such as https://fieldpost.example.org" in visitor.text.lower()
        assert "evil.example" not in refused.text
        added = await visitor.send("/sites", name="north", central="https://fieldpost.example.org")
        assert "@https://fieldpost.example.org" in visitor.page.text, added.text


async def test_the_public_url_has_precedence(front: Front) -> None:
    parked = await front.park()
    options = FrontOptions(public_url="https://fieldpost.example.org")
    front.app = create_app(front.operate, front.watch, front.centre.ingest, front.commands, options, front.clock)
    async with visiting(front, "operator") as visitor:
        page = (await visitor.client.get(f"/notifications/{parked}", headers=EVIL)).text
        assert "https://fieldpost.example.org/api/v1/" in page
        assert "evil.example" not in page
