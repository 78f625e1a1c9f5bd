"""Apprise under our guard: addresses, redirects, large answers, fitting, the proxy and the deadline."""

from collections.abc import AsyncIterator

import pytest

from fieldpost.central.adapters.apprise.adapter import AppriseAdapter
from fieldpost.central.operate.list_spec import ListSpec
from fieldpost.central.operate.operate import Operate
from fieldpost.core.delivery.outcome import Delivered, Held, PermanentFailure, TransientFailure
from fieldpost.core.notification import Status, TargetStatus
from fieldpost.core.secret import Secret
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.outbound import Outbound
from fieldpost.testing import World
from fieldpost.testing.http import HttpServer
from fieldpost.testing.world import envelope
from support.centre import Centre
from support.front import ADMIN
from support.tinyproxy import PASSWORD, tinyproxy

pytestmark = [pytest.mark.req("CHN-13"), pytest.mark.needs("apprise")]


def world_of(**urls: str) -> World:
    secrets = {label: Secret(url) for label, url in urls.items()}
    return World({}, tuple(urls), list, target_secrets=secrets)


@pytest.fixture
async def allowed() -> AsyncIterator[AppriseAdapter]:
    adapter = AppriseAdapter(outbound=Outbound(OutboundOptions(allow="127.0.0.1")))
    yield adapter
    await adapter.close()


async def test_private_addresses_are_denied_to_literals_names_and_redirects(allowed: AppriseAdapter) -> None:
    strict = AppriseAdapter()
    async with HttpServer() as server:
        for host in ("127.0.0.1", "localhost"):
            outcome = await strict.deliver(envelope(world_of(a=f"json://{host}:{server.port}/x")))
            assert isinstance(outcome, Held)
            assert outcome.phase == "guard"
            assert "loopback" in outcome.error
        assert server.requests == []
        server.on().redirect("http://169.254.169.254/latest")
        outcome = await allowed.deliver(envelope(world_of(a=f"json://127.0.0.1:{server.port}/x")))
        assert isinstance(outcome, PermanentFailure)
        assert "redirects are not followed" in outcome.error
        assert len(server.requests) == 1
    await strict.close()


async def test_huge_answer_is_read_in_part_and_long_text_is_truncated(allowed: AppriseAdapter) -> None:
    async with HttpServer() as server:
        server.on().huge(200 * 1024 * 1024)
        url = f"json://127.0.0.1:{server.port}/x"
        outcome = await allowed.deliver(envelope(world_of(a=url), body="ä" * 200_000))
        assert isinstance(outcome, Delivered)
        (target,) = outcome.targets
        assert target.status is TargetStatus.DELIVERED
        assert target.truncated_to is not None
        assert target.truncated_to < 200_000


@pytest.mark.req("CHN-04")
@pytest.mark.parametrize("before", [150, 180, 190])
async def test_a_secret_where_an_answer_is_truncated_is_hidden(allowed: AppriseAdapter, before: int) -> None:
    async with HttpServer() as server:
        server.on().answer(403, "unknown token canary-0123456789abcdef".rjust(before + 23, "."))
        lines: list[str] = []
        world = world_of(a=f"json://127.0.0.1:{server.port}/canary-0123456789abcdef")
        outcome = await allowed.deliver(envelope(world, transcript=lines.append))
        assert isinstance(outcome, PermanentFailure)
        assert "unknown token" in outcome.error
        assert not any("can" in text for text in (repr(outcome), *lines)), outcome


async def test_a_killed_child_is_replaced(allowed: AppriseAdapter) -> None:
    async with HttpServer() as server:
        world = world_of(a=f"json://127.0.0.1:{server.port}/x")
        assert isinstance(await allowed.deliver(envelope(world)), Delivered)
        for child in tuple(allowed._children._all):
            await child.kill()
        assert isinstance(await allowed.deliver(envelope(world)), Delivered)


async def test_requests_go_through_the_proxy_and_its_password_is_hidden() -> None:
    with tinyproxy() as proxy:
        adapter = AppriseAdapter(outbound=Outbound(OutboundOptions(**proxy.options)))
        async with HttpServer() as server:
            found = await adapter.deliver(envelope(world_of(a=f"json://localhost:{server.port}/x")))
            assert isinstance(found, Delivered), found
            denied = await adapter.deliver(envelope(world_of(a=f"json://127.0.0.1:{server.port}/x")))
            assert isinstance(denied, Held)
            assert len(server.requests) == 1
        away = await adapter.deliver(envelope(world_of(a=f"json://localhost:{server.port}/x")))
        assert isinstance(away, TransientFailure | Held | PermanentFailure)
        assert PASSWORD not in f"{found}{denied}{away}"
        await adapter.close()


@pytest.mark.req("CHN-04")
async def test_a_list_with_an_apprise_url_delivers_and_a_changed_url_fixes_what_parked(
    centre: Centre, allowed: AppriseAdapter
) -> None:
    centre.adapters["apprise"] = allowed
    operate = Operate.over(centre.store, centre.adapters, centre.clock, centre.keyring)
    await operate.channels.add(ADMIN, "other services", "apprise", {}, is_default=True)
    async with HttpServer() as server:
        server.on("POST", "/canary-old").answer(403)
        url = f"json://127.0.0.1:{server.port}"
        spec = ListSpec(name="ops", type="apprise", targets=["duty"], secrets={"duty": f"{url}/canary-old"})
        added = await operate.lists.add(ADMIN, spec)
        sent = await centre.send("ops")
        await centre.deliver()
        parked = await centre.get(sent)
        assert (parked.status, parked.last_error) == (Status.PARKED, "duty: 403")
        await operate.lists.change(ADMIN, "ops", added.version, secrets={"duty": f"{url}/canary-new"})
        assert await centre.retry(sent)
        await centre.deliver()
        assert (await centre.get(sent)).status is Status.DELIVERED
    told = f"{await centre.get(sent)}{await centre.attempts(sent)}{await centre.audit(sent)}"
    assert "canary" not in told
