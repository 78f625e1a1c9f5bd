"""The link's client against a real server that misbehaves."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fieldpost.clock import SystemClock
from fieldpost.core.errors import Denied, Unavailable
from fieldpost.link import client as link_client
from fieldpost.link import connection as link_connection
from fieldpost.link.client import LinkClient
from fieldpost.link.connection import LOST
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.messages import FRAME_BYTES_MAX, Ack, Hello, Item, Refusal
from fieldpost.link.session import LinkSession
from support.link_central import LinkCentral, link_central
from support.ports import closed_port
from support.site_folders import TOKEN


@pytest.fixture
async def central() -> AsyncIterator[LinkCentral]:
    async with link_central() as central:
        yield central


@asynccontextmanager
async def client_of(url: str, session: LinkSession | None = None) -> AsyncIterator[LinkClient]:
    client = LinkClient(lambda: Endpoint(url, TOKEN), session or LinkSession(), SystemClock())
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
async def client(central: LinkCentral) -> AsyncIterator[LinkClient]:
    async with client_of(central.url) as client:
        yield client


def item(name: str = "1") -> Item:
    return Item(f"id-{name}", "ops", "s", "b")


async def accepted(client: LinkClient, *items: Item) -> None:
    answer = await client.submit(items)
    assert isinstance(answer, Ack)
    assert [result.notification_id for result in answer.results] == [item.notification_id for item in items]


@pytest.mark.req("ING-01")
async def test_a_submit_is_answered_by_the_ack_of_its_number(client: LinkClient, central: LinkCentral) -> None:
    await accepted(client, item("1"), item("2"))
    await accepted(client, item("3"))
    assert list(central.stored) == ["id-1", "id-2", "id-3"]
    assert central.upgrades == 1
    assert central.tokens == [f"Bearer {TOKEN}"]
    assert [hello.protocol for hello in central.hellos] == [1]


async def test_answers_are_matched_to_concurrent_requests(client: LinkClient) -> None:
    await accepted(client, item("0"))
    await asyncio.gather(*(accepted(client, item(str(number))) for number in range(20)))


async def test_credits_are_known_after_the_greeting(central: LinkCentral) -> None:
    central.greeting = Hello(1, "x", credits=3)
    central.credits = 8
    session = LinkSession()
    async with client_of(central.url, session) as client:
        await client._connect()
        assert session.credits == 3
        await accepted(client, item())
    assert session.credits == 8


async def test_a_token_that_central_does_not_accept_is_denied(client: LinkClient, central: LinkCentral) -> None:
    central.upgrade_status = 401
    with pytest.raises(Denied, match="401"):
        await client.submit([item()])
    assert central.posts == 0
    central.upgrade_status = None
    await accepted(client, item())


async def test_an_unreachable_central_is_unavailable_and_nothing_was_sent() -> None:
    async with client_of(f"http://127.0.0.1:{closed_port()}") as client:
        with pytest.raises(Unavailable) as caught:
            await client.submit([item()])
        assert caught.value.code == "link.unreachable"


@pytest.mark.parametrize("behaviour", ["lose_ack", "cut"])
async def test_a_connection_that_breaks_before_the_ack_is_lost_and_the_next_one_is_fresh(
    client: LinkClient, central: LinkCentral, behaviour: str
) -> None:
    await accepted(client, item("0"))
    central.next.append(behaviour)  # type: ignore[arg-type]
    with pytest.raises(Unavailable) as caught:
        await client.submit([item("1")])
    assert caught.value.code == LOST
    await accepted(client, item("1"))
    assert central.upgrades == 2


async def test_missing_answer_times_out(central: LinkCentral, monkeypatch: pytest.MonkeyPatch) -> None:
    session = LinkSession()
    central.next.append("silence")
    async with client_of(central.url, session) as client:
        with monkeypatch.context() as hasty:
            hasty.setattr(LinkSession, "patience_s", lambda self, size: 0.2)
            with pytest.raises(Unavailable) as caught:
                await client.submit([item("1")])
        assert caught.value.code == LOST
        assert session.in_flight == ()
        await accepted(client, item("1"))


@pytest.mark.fault(18)
async def test_vanished_central_is_noticed_on_an_idle_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half-open: the line swallows everything, both ways, and nobody hangs up."""
    assert link_connection.PING_S + link_connection.SILENCE_S <= 30
    monkeypatch.setattr(link_connection, "PING_S", 0.05)
    monkeypatch.setattr(link_connection, "SILENCE_S", 0.3)
    async with link_central() as central, swallowing_proxy(central.url) as proxy, client_of(proxy.url) as client:
        await accepted(client, item("1"))
        connection = client._connection
        assert connection is not None
        proxy.is_swallowing = True
        async with asyncio.timeout(30):
            await asyncio.wait([connection._reader])
        assert connection.is_closed
        proxy.is_swallowing = False
        await accepted(client, item("2"))
        assert central.upgrades == 2


async def test_pings_keep_an_idle_connection_open(central: LinkCentral, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_connection, "PING_S", 0.02)
    monkeypatch.setattr(link_connection, "SILENCE_S", 1.0)
    async with client_of(central.url) as client:
        await accepted(client, item("1"))
        connection = client._connection
        assert connection is not None
        # Longer than the silence that would end it.
        _, waiting = await asyncio.wait([connection._reader], timeout=1.5)
        assert waiting
        await accepted(client, item("2"))
    assert central.upgrades == 1


async def test_unknown_message_of_a_newer_central_is_ignored(client: LinkClient, central: LinkCentral) -> None:
    central.next.append("stray")
    await accepted(client, item("1"))
    assert central.upgrades == 1


@pytest.mark.parametrize("status", [200, 400, 403, 404, 426, 501, 502])
async def test_post_is_used_if_a_proxy_rejects_the_websocket(
    client: LinkClient, central: LinkCentral, status: int
) -> None:
    central.upgrade_status = status
    await accepted(client, item("1"))
    await accepted(client, item("2"))
    assert (central.posts, central.upgrades) == (2, 1)
    assert set(central.tokens) == {f"Bearer {TOKEN}"}
    assert list(central.stored) == ["id-1", "id-2"]


async def test_the_websocket_is_tried_again_after_a_while(
    central: LinkCentral, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_client, "WEBSOCKET_AGAIN_S", 0.0)
    async with client_of(central.url) as client:
        central.upgrade_status = 426
        await accepted(client, item("1"))
        central.upgrade_status = None
        await accepted(client, item("2"))
    assert (central.posts, central.upgrades) == (1, 2)


@pytest.mark.parametrize(("status", "code"), [(400, "link.invalid"), (413, "link.invalid"), (422, "link.invalid")])
async def test_post_rejected_permanently_by_central_is_a_rejection(
    client: LinkClient, central: LinkCentral, status: int, code: str
) -> None:
    central.upgrade_status, central.post_status = 426, status
    answer = await client.submit([item()])
    assert isinstance(answer, Refusal)
    assert answer.code == code


@pytest.mark.parametrize("status", [429, 503])
async def test_busy_central_returns_how_long_to_wait(client: LinkClient, central: LinkCentral, status: int) -> None:
    central.upgrade_status, central.post_status = 426, status
    answer = await client.submit([item()])
    assert isinstance(answer, Refusal)
    assert (answer.code, answer.wait_s) == ("link.busy", 7)


@pytest.mark.parametrize(("status", "kind"), [(401, Denied), (403, Denied), (404, Unavailable), (500, Unavailable)])
async def test_other_answers_to_a_post_are_errors(
    client: LinkClient, central: LinkCentral, status: int, kind: type[Exception]
) -> None:
    central.upgrade_status, central.post_status = 426, status
    with pytest.raises(kind):
        await client.submit([item()])


@pytest.mark.parametrize("status", [429, 503])
async def test_a_central_that_is_busy_at_the_upgrade_is_not_posted_to(
    client: LinkClient, central: LinkCentral, status: int
) -> None:
    central.upgrade_status = status
    with pytest.raises(Unavailable) as caught:
        await client.submit([item()])
    assert caught.value.code == "link.busy"
    assert central.posts == 0


async def test_rejection_in_place_of_a_greeting_is_reported(client: LinkClient, central: LinkCentral) -> None:
    central.greeting = Refusal("link.protocol", "this site is too old")
    with pytest.raises(Unavailable, match="too old") as caught:
        await client.submit([item()])
    assert caught.value.code == "link.protocol"


async def test_central_without_a_greeting_is_abandoned(central: LinkCentral, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_connection, "CONNECT_S", 0.3)
    central.greeting = None
    async with client_of(central.url) as client:
        with pytest.raises(Unavailable) as caught:
            await client.submit([item()])
    assert caught.value.code == "link.timeout"


async def test_a_message_beyond_the_frame_limit_is_refused_before_it_is_sent(
    client: LinkClient, central: LinkCentral
) -> None:
    answer = await client.submit([Item("id", "ops", "s", "b" * FRAME_BYTES_MAX)])
    assert isinstance(answer, Refusal)
    assert answer.code == "link.too_large"
    assert central.upgrades == 0


class SwallowingProxy:
    """A line to central that can fall silent without ending."""

    def __init__(self, port: int) -> None:
        self.url = ""
        self.port = port
        self.is_swallowing = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.port)
        await asyncio.gather(
            self.pass_on(reader, there_writer), self.pass_on(there_reader, writer), return_exceptions=True
        )

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_cut = False
        try:
            while data := await reader.read(65536):
                is_cut = is_cut or self.is_swallowing
                if not is_cut:
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.close()


@asynccontextmanager
async def swallowing_proxy(url: str) -> AsyncIterator[SwallowingProxy]:
    proxy = SwallowingProxy(int(url.rsplit(":", 1)[1]))
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, family=socket.AF_INET)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
