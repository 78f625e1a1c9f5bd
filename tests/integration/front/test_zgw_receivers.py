"""Receivers of the ZGW API: retries by preset, tokens that expire, callbacks whose address is blocked."""

import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest

from fieldpost.central.store.notifications.live_rows import HURRY_S
from fieldpost.central.watch.issues import IssueCode
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.subscription import subscription_key
from fieldpost.core.notification import Status
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.outbound import Outbound
from fieldpost.outbound.resolver import CACHE_S, SystemResolver
from fieldpost.testing import HttpServer
from support.front import ADMIN, Front
from support.zgw import AUTH, KANAAL, PUBLIC, SECRET, Zgw, notification, open_zgw, token

PUBLIC_ADDRESS, PRIVATE_ADDRESS = "127.0.0.2", "127.0.0.3"
EXPIRES_IN = 12 * 3600
WAITING = 30
"""More than the failures that block a subscription."""


@pytest.fixture
async def zgw(front: Front) -> AsyncIterator[Zgw]:
    async with open_zgw(front) as opened:
        yield opened


def jwt(expires_at: int) -> str:
    return f"Bearer {token('receiver', SECRET, datetime.fromtimestamp(expires_at, UTC), exp=expires_at)}"


async def statuses(zgw: Zgw) -> set[str]:
    return {str(status) for (status,) in await zgw.front.centre.rows("select status from notifications")}


async def ids(zgw: Zgw) -> set[str]:
    return {str(one) for (one,) in await zgw.front.centre.rows("select notification_id from notifications")}


async def issues(zgw: Zgw) -> set[IssueCode]:
    """The issues about tokens of receivers."""
    zgw.front.clock.advance(60)
    found = (await zgw.front.watch.overview.now()).issues
    return {one.code for one in found} & {IssueCode.RECEIVER_TOKEN}


async def abonnement_path(zgw: Zgw, **more: str) -> str:
    made = await zgw.create("abonnement", zgw.abonnement(**more))
    return str(made["url"]).removeprefix(f"{PUBLIC}/notificaties/api/v1/")


@pytest.mark.req("ZGW-12")
async def test_health_shows_a_token_an_hour_before_it_expires_and_until_it_is_replaced(zgw: Zgw) -> None:
    await zgw.create("kanaal", KANAAL)
    now = int(zgw.front.clock.now().timestamp())
    path = await abonnement_path(zgw, auth=jwt(now + EXPIRES_IN))
    assert await issues(zgw) == set()
    zgw.front.clock.advance(EXPIRES_IN - 3600 - 60)
    assert await issues(zgw) == {IssueCode.RECEIVER_TOKEN}, "before"
    zgw.front.clock.advance(7200)
    assert await issues(zgw) == {IssueCode.RECEIVER_TOKEN}, "after"
    async with zgw.client() as client:
        assert (await client.patch(path, json={"auth": jwt(now + 4 * EXPIRES_IN)})).status_code == 200
    assert await issues(zgw) == set()


@pytest.mark.req("ZGW-12")
async def test_one_patch_delivers_everything_that_an_expired_token_kept_waiting(zgw: Zgw) -> None:
    """Those behind the breaker too, without waiting for their next attempt; each of them once."""
    front = zgw.front
    now = int(front.clock.now().timestamp())
    await zgw.create("kanaal", KANAAL)
    expiring = jwt(now + EXPIRES_IN)
    path = await abonnement_path(zgw, auth=expiring)
    await zgw.create("notificaties", notification(resource="in-time"))
    await zgw.deliver()
    assert await statuses(zgw) == {"delivered"}
    front.clock.advance(EXPIRES_IN)
    rejected = zgw.callback.on("POST", when=lambda r: r.headers["authorization"] == expiring).answer(403)
    for number in range(WAITING):
        await zgw.create("notificaties", notification(resource=f"status-{number}"))
        if number % 15 == 14:
            await zgw.deliver()
    assert rejected.hits < WAITING, "the breaker spares a receiver that rejects everything"
    held = await front.centre.rows("select notification_id from notifications where held_by is not null")
    tried = await front.centre.rows("select notification_id from notifications where status = 'retrying'")
    assert held
    assert tried
    for (notification_id,) in tried:
        why = (await front.watch.notifications.detail(str(notification_id))).why
        assert "the receiver answered 403" in why
    for (notification_id,) in [*held, *tried]:
        why = (await front.watch.notifications.detail(str(notification_id))).why
        assert "The token that is sent to the receiver expired at" in why
        assert "so the receiver rejects it: set the auth of the subscription again" in why
    async with zgw.client() as client:
        assert (await client.patch(path, json={"auth": jwt(now + 3 * EXPIRES_IN)})).status_code == 200
    patched_at = front.clock.now()
    while await statuses(zgw) != {"delivered"}:
        await zgw.deliver()
        assert front.clock.now() - patched_at < timedelta(minutes=5), "before the next attempt on the schedule"
    accepted = [r.headers["webhook-id"] for r in zgw.callback.requests if r.headers["authorization"] != expiring]
    in_time = [r.headers["webhook-id"] for r in zgw.callback.requests if b"in-time" in r.body]
    tests = [r.headers["webhook-id"] for r in zgw.callback.requests if b'"kanaal": "test"' in r.body]
    assert sorted([*in_time, *(one for one in accepted if one not in tests)]) == sorted(await ids(zgw))


@pytest.mark.req("ZGW-12")
async def test_a_node_that_knows_the_former_auth_does_not_use_up_what_a_patch_made_due(zgw: Zgw) -> None:
    """Nodes keep settings for up to `[dispatch] refresh_s`: this one has just read them."""
    await zgw.create("kanaal", KANAAL)
    path = await abonnement_path(zgw)
    for number in range(3):
        await zgw.create("notificaties", notification(resource=f"status-{number}"))
    zgw.callback.on("POST", when=lambda r: r.headers["authorization"] == AUTH).answer(403)
    node = zgw.front.centre.dispatcher()
    async with node.running():
        await node.sweep()
        await node.idle()
        assert await statuses(zgw) == {"retrying"}
        async with zgw.client() as client:
            assert (await client.patch(path, json={"auth": "Bearer another"})).status_code == 200
        for _ in range(2):
            await node.sweep()
            await node.idle()
            zgw.front.clock.advance(HURRY_S)
        await node.sweep()
        await node.idle()
    assert await statuses(zgw) == {"delivered"}


@pytest.mark.parametrize(
    ("installation", "own", "first_s", "second_s"),
    [
        (None, None, 900, 1800),
        ("open-notificaties", None, 25, 100),
        ("open-notificaties", "oneground", 900, 1800),
        ("oneground", "open-notificaties", 25, 100),
        ("fixed:7s:3", None, 7, 7),
    ],
)
async def test_abonnementen_are_retried_by_the_preset_of_the_installation_or_their_own(
    front: Front, installation: str | None, own: str | None, first_s: int, second_s: int
) -> None:
    async with open_zgw(front, **({} if installation is None else {"retry": installation})) as zgw:
        await zgw.create("kanaal", KANAAL)
        await zgw.create("abonnement", zgw.abonnement())
        [abonnement] = await zgw.operate.subscriptions.find()
        hook = {"url": f"{zgw.callback.url}/native", "format": "raw"}
        await zgw.operate.subscriptions.add(ADMIN, "native", "both", [FilterEntry(topic="zaken")], hook)
        if own is not None:
            async with front.client("admin") as native:
                found = await native.get(f"/api/v1/subscriptions/{abonnement.subscription_id}")
            await zgw.operate.subscriptions.change(
                ADMIN, abonnement.subscription_id, found.json()["version"], retry=own
            )
        zgw.callback.on("POST").answer(404)  # no quick tries follow
        await zgw.create("notificaties", notification())
        for wait_s in (first_s, second_s):
            await zgw.deliver()
            waits = {}
            for key, id_ in await front.centre.rows("select delivery_key, notification_id from notifications"):
                found = await front.centre.get(str(id_))
                assert found.status is Status.RETRYING
                assert found.next_attempt_at is not None
                assert found.last_attempt_at is not None
                waits[str(key)] = found.next_attempt_at - found.last_attempt_at
            assert waits.pop(subscription_key(abonnement.subscription_id)) == timedelta(seconds=wait_s)
            assert min(waits.values()) >= timedelta(seconds=900), "native subscriptions keep their own"
            front.clock.advance(wait_s)


@pytest.fixture
async def private(front: Front) -> AsyncIterator[tuple[Zgw, list[str], HttpServer]]:
    """With the answers of the name server for `hook.example`, and the callback at the private address."""
    if sys.platform != "linux":
        pytest.skip("needs 127.0.0.2 and 127.0.0.3")
    addresses = [PUBLIC_ADDRESS]

    def look_up(name: str) -> list[str]:
        return list(addresses) if name == "hook.example" else [str(one[4][0]) for one in socket.getaddrinfo(name, 0)]

    resolver = SystemResolver(look_up=look_up, clock=front.clock)
    outbound = Outbound(OutboundOptions(PUBLIC_ADDRESS), resolve=resolver)
    async with AsyncExitStack() as stack:
        zgw = await stack.enter_async_context(open_zgw(front, outbound=outbound))
        zgw.callback = await stack.enter_async_context(HttpServer(host=PUBLIC_ADDRESS))
        inside = await stack.enter_async_context(HttpServer(host=PRIVATE_ADDRESS, port=zgw.callback.port))
        yield zgw, addresses, inside
        assert inside.connection_count == 0, "nothing ever connects to the private address"


@pytest.mark.req("ZGW-09")
@pytest.mark.fault(53)
@pytest.mark.threat(15)
async def test_a_blocked_callback_is_connected_to_zero_times(private: tuple[Zgw, list[str], HttpServer]) -> None:
    zgw, addresses, inside = private
    await zgw.create("kanaal", KANAAL)
    port = inside.port
    hosts = (
        "127.0.0.3",
        "127.3",
        "0x7f.3",
        "2130706435",
        "0177.0.0.3",
        "[::ffff:127.0.0.3]",
        "①②⑦.0.0.3",
        "localhost.",
    )
    async with zgw.client() as client:
        for host in hosts:
            answer = await client.post("abonnement", json=zgw.abonnement(callbackUrl=f"http://{host}:{port}/in"))
            assert answer.status_code == 400, (host, answer.text)
            assert answer.json()["invalidParams"][0]["code"] == "invalid-callback-url", host
        for answers in ([PRIVATE_ADDRESS], [PUBLIC_ADDRESS, PRIVATE_ADDRESS]):
            addresses[:] = answers
            zgw.front.clock.advance(CACHE_S + 1)
            answer = await client.post("abonnement", json=zgw.abonnement(callbackUrl=f"http://hook.example:{port}/in"))
            assert answer.json()["invalidParams"][0]["code"] == "invalid-callback-url", answers
        assert (await client.get("abonnement")).json() == []
    assert (inside.connection_count, zgw.callback.connection_count) == (0, 0)


@pytest.mark.req("ZGW-09")
@pytest.mark.fault(53)
@pytest.mark.threat(15)
async def test_a_callback_that_moves_to_a_blocked_address_gets_nothing(
    private: tuple[Zgw, list[str], HttpServer],
) -> None:
    zgw, addresses, inside = private
    await zgw.create("kanaal", KANAAL)
    url = f"http://hook.example:{inside.port}/in"
    path = await abonnement_path(zgw, callbackUrl=url)
    addresses[:] = [PRIVATE_ADDRESS]
    zgw.front.clock.advance(CACHE_S + 1)
    zgw.callback.close_connections()
    await zgw.callback.idle()
    zgw.callback.on("POST", "/moved").redirect(f"{inside.url}/in")
    await zgw.create("notificaties", notification())
    await zgw.deliver()
    assert zgw.received() == []
    assert "delivered" not in await statuses(zgw)
    async with zgw.client() as client:
        for change in ({"auth": AUTH}, {"callbackUrl": f"{zgw.callback.url}/moved"}):
            answer = await client.patch(path, json=change)
            assert answer.json()["invalidParams"][0]["code"] == "invalid-callback-url", change
    assert [r.path for r in zgw.callback.requests][-1] == "/moved", "and the redirect was not followed"
