"""Who may come in, and which nodes there are."""

from datetime import timedelta

import pytest
from sqlalchemy.exc import IntegrityError

from fieldpost.central.store.accounts import identities
from fieldpost.central.store.accounts.identities import TokenRecord, UserRecord
from fieldpost.central.store.figures import nodes
from fieldpost.central.store.figures.nodes import NodeRecord
from fieldpost.central.store.sites import sites
from fieldpost.central.store.sites.sites import SiteRecord
from fieldpost.testing import ManualClock
from support.centre import Centre


async def test_a_token_is_found_by_its_kind_and_prefix(centre: Centre, clock: ManualClock) -> None:
    end = clock.now() + timedelta(hours=1)
    await centre.store.write(
        identities.add_token, TokenRecord("pre", "session", b"\x00\xff", "anna", "admin", clock.now(), end)
    )
    found = await centre.store.read(identities.get_token, "session", "pre")
    assert found == TokenRecord("pre", "session", b"\x00\xff", "anna", "admin", clock.now(), end, None)
    assert await centre.store.read(identities.get_token, "api", "pre") is None
    assert await centre.store.read(identities.get_token, "session", "other") is None


async def test_a_site_token_has_no_role_and_every_other_has_one(centre: Centre, clock: ManualClock) -> None:
    with pytest.raises(IntegrityError):
        await centre.store.write(identities.add_token, TokenRecord("a", "site", b"x", "plant", "admin", clock.now()))
    with pytest.raises(IntegrityError):
        await centre.store.write(identities.add_token, TokenRecord("b", "api", b"x", "anna", None, clock.now()))


async def test_a_token_is_revoked_once(centre: Centre, clock: ManualClock) -> None:
    await centre.store.write(identities.add_token, TokenRecord("pre", "site", b"x", "plant-7", None, clock.now()))
    clock.advance(5)
    assert not await centre.store.write(identities.revoke_token, "api", "pre", clock.now())
    assert await centre.store.write(identities.revoke_token, "site", "pre", clock.now())
    assert not await centre.store.write(identities.revoke_token, "site", "pre", clock.now())
    found = await centre.store.read(identities.get_token, "site", "pre")
    assert found is not None
    assert found.revoked_at == clock.now()


async def test_site_has_a_name_and_a_time_of_last_contact(centre: Centre, clock: ManualClock) -> None:
    start = clock.now()
    await centre.store.write(sites.add, "plant-8", start)
    await centre.store.write(sites.add, "plant-7", start)
    clock.advance(5)
    await centre.store.write(sites.saw, ["plant-7"], clock.now())
    assert await centre.store.read(sites.get, "plant-7") == SiteRecord("plant-7", start, clock.now())
    assert await centre.store.read(sites.get, "nowhere") is None
    assert [s.name for s in await centre.store.read(sites.all_sites)] == ["plant-7", "plant-8"]
    with pytest.raises(IntegrityError):
        await centre.store.write(sites.add, "plant-7", start)


async def test_an_operator_has_a_password_hash_and_a_known_role(centre: Centre, clock: ManualClock) -> None:
    assert not await centre.store.read(identities.has_users)
    with pytest.raises(IntegrityError):
        await centre.store.write(identities.add_user, UserRecord("anna", "hash", "king", clock.now()))
    await centre.store.write(identities.add_user, UserRecord("anna", "hash", "operator", clock.now()))
    assert await centre.store.read(identities.has_users)
    assert await centre.store.write(identities.set_password, "anna", "newer")
    assert not await centre.store.write(identities.set_password, "bert", "newer")
    assert await centre.store.read(identities.get_user, "anna") == UserRecord(
        "anna", "newer", "operator", clock.now(), version=2
    )
    assert await centre.store.read(identities.get_user, "bert") is None


async def test_node_reports_that_it_is_alive_until_it_stops(centre: Centre, clock: ManualClock) -> None:
    start = clock.now()
    await centre.store.write(nodes.start, "node-1", "host", "1.0", now=centre.store.now())
    clock.advance(5)
    beaten = clock.now()
    await centre.store.write(nodes.beat, "node-1", now=centre.store.now())
    await centre.store.write(nodes.start, "node-2", "host", "1.0", now=centre.store.now())
    assert await centre.store.read(nodes.all_nodes) == [
        NodeRecord("node-1", "host", "1.0", start, beaten, None),
        NodeRecord("node-2", "host", "1.0", beaten, beaten, None),
    ]
    clock.advance(5)
    await centre.store.write(nodes.stop, "node-2", now=centre.store.now())
    await centre.store.write(nodes.start, "node-3", "host", "1.0", now=centre.store.now())
    await centre.store.write(nodes.close_others, "node-3")
    assert {n.node_id: n.stopped_at for n in await centre.store.read(nodes.all_nodes)} == {
        "node-1": beaten,
        "node-2": clock.now(),
        "node-3": None,
    }
