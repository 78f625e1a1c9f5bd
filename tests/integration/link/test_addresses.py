"""Several addresses of one central."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import trustme

from fieldpost.clock import SystemClock
from fieldpost.core.errors import ConfigError, Denied, Unavailable
from fieldpost.link import addresses, connection
from fieldpost.link.addresses import Addresses, NoWebSocket
from fieldpost.link.client import LinkClient
from fieldpost.link.connection import LOST, LinkConnection
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.messages import Ack, Item, StatusAnswer
from fieldpost.link.session import LinkSession
from fieldpost.link.status import ask_status
from support.link_central import link_central
from support.ports import closed_port
from support.site_folders import TOKEN


def item(name: str = "1") -> Item:
    return Item(f"id-{name}", "ops", "s", "b")


@asynccontextmanager
async def client_of(*urls: str, ca_file: Path | None = None) -> AsyncIterator[LinkClient]:
    client = LinkClient(lambda: Endpoint(urls[0], TOKEN, ca_file, urls[1:]), LinkSession(), SystemClock())
    try:
        yield client
    finally:
        await client.close()


@contextmanager
def swallowing_port() -> Iterator[int]:
    """An address that takes connections and never says a word, as a machine behind a broken firewall."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield listening.getsockname()[1]


async def test_next_address_is_used_when_one_does_not_answer_and_kept() -> None:
    async with link_central() as first, link_central() as second:
        async with client_of(first.url, second.url) as client:
            await client.submit([item("1")])
            assert (len(first.stored), len(second.stored)) == (1, 0)
        async with client_of(f"http://127.0.0.1:{closed_port()}", second.url, first.url) as client:
            await client.submit([item("2")])
            assert len(second.stored) == 1
            first.upgrades = 0
            second.next.append("cut")
            with pytest.raises(Unavailable):
                await client.submit([item("3")])
            # The connection broke, the address is still the one that worked.
            await client.submit([item("3")])
            assert (first.upgrades, second.upgrades) == (0, 2)


async def test_address_that_drops_packets_causes_one_short_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "STAGGER_S", 0.1)
    monkeypatch.setattr(connection, "CONNECT_S", 60)
    with swallowing_port() as port:
        async with link_central() as central, client_of(f"http://127.0.0.1:{port}", central.url) as client:
            async with asyncio.timeout(connection.CONNECT_S / 2):
                assert isinstance(await client.submit([item("1")]), Ack)
            central.next.append("cut")
            with pytest.raises(Unavailable):
                await client.submit([item("2")])
            monkeypatch.setattr(addresses, "STAGGER_S", 3600)
            async with asyncio.timeout(connection.CONNECT_S / 2):
                assert isinstance(await client.submit([item("2")]), Ack)


async def test_an_address_that_greets_and_never_answers_is_left_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async with link_central() as mute, link_central() as central, client_of(mute.url, central.url) as client:
        mute.next.extend(["silence"] * 10)
        with monkeypatch.context() as hasty:
            hasty.setattr(LinkSession, "patience_s", lambda self, size: 0.2)
            with pytest.raises(Unavailable) as caught:
                await client.submit([item("1")])
        assert caught.value.code == LOST
        assert isinstance(await client.submit([item("1")]), Ack)
        assert list(central.stored) == ["id-1"]


async def test_error_names_every_address_if_none_answers() -> None:
    urls = [f"http://127.0.0.1:{closed_port()}", f"http://localhost:{closed_port()}"]
    async with client_of(*urls) as client:
        with pytest.raises(Unavailable) as caught:
            await client.submit([item("1")])
    assert caught.value.code == "link.unreachable"
    assert all(url in caught.value.message for url in urls)
    assert "object at" not in caught.value.message, "it is for people"


async def test_denial_by_one_address_is_reported_before_dead_ones() -> None:
    async with link_central() as central:
        central.upgrade_status = 401
        async with client_of(f"http://127.0.0.1:{closed_port()}", central.url) as client:
            with pytest.raises(Denied):
                await client.submit([item("1")])


async def test_a_websocket_at_another_address_is_better_than_post_at_the_first() -> None:
    async with link_central() as proxied, link_central() as central, client_of(proxied.url, central.url) as client:
        proxied.upgrade_status = 426
        assert isinstance(await client.submit([item("1")]), Ack)
        assert (proxied.posts, central.posts, len(central.stored)) == (0, 0, 1)


async def test_posts_too_find_the_address_that_answers() -> None:
    dead = f"http://127.0.0.1:{closed_port()}"
    async with link_central() as central, client_of(dead, central.url) as client:
        central.upgrade_status = 426
        for name in ("1", "2"):
            assert isinstance(await client.submit([item(name)]), Ack)
        assert central.posts == 2


async def test_posts_begin_at_the_address_that_has_answered_the_websocket_by_a_refusal() -> None:
    async def open_one(one: Endpoint) -> LinkConnection:
        raise NoWebSocket("HTTP 426") if one.url == "http://proxied" else Unavailable("link.timeout", "silence")

    known, endpoint = Addresses(), Endpoint("http://silent", TOKEN, None, ("http://proxied",))
    with pytest.raises(NoWebSocket):
        await known.reach(endpoint, open_one, LinkConnection.close)
    assert [one.url for one in known.ordered(endpoint)] == ["http://proxied", "http://silent"]


async def test_posts_go_to_the_next_address_once_one_has_lost_what_was_sent() -> None:
    async with link_central() as first, link_central() as second, client_of(first.url, second.url) as client:
        first.upgrade_status = second.upgrade_status = 426
        assert isinstance(await client.submit([item("1")]), Ack)
        first.post_status = 200
        with pytest.raises(Unavailable) as caught:
            await client.submit([item("2")])
        assert caught.value.code == LOST
        assert isinstance(await client.submit([item("2")]), Ack)
        assert (list(first.stored), list(second.stored)) == (["id-1"], ["id-2"])


async def test_blocking_proxy_causes_no_delay_if_another_address_answers() -> None:
    async with link_central() as barred, link_central() as central, client_of(barred.url, central.url) as client:
        barred.upgrade_status, barred.post_status, central.upgrade_status = 403, 403, 426
        assert isinstance(await client.submit([item("1")]), Ack)
        central.post_status = 500
        with pytest.raises(Denied, match="on the path"):
            await client.submit([item("2")])


async def test_the_status_of_a_notification_is_asked_of_the_address_that_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fieldpost.link.status._addresses", Addresses())
    with swallowing_port() as port:
        async with link_central() as central:
            central.statuses["id-1"] = StatusAnswer("id-1", "pending")
            endpoint = Endpoint(f"http://127.0.0.1:{port}", TOKEN, None, (central.url,))
            answer = await asyncio.to_thread(ask_status, endpoint, "id-1", 4.0)
            assert answer.status == "pending"
            # Asked first now, it has no half of the time to wait for.
            answer = await asyncio.to_thread(ask_status, endpoint, "id-1", 30.0)
            assert (answer.status, len(central.status_asked)) == ("pending", 2)
            dead = Endpoint(f"http://127.0.0.1:{port}", TOKEN, None, (f"http://127.0.0.1:{closed_port()}",))
            with pytest.raises(Unavailable):
                await asyncio.to_thread(ask_status, dead, "id-1", 0.4)


@pytest.mark.threat(20)
async def test_configured_authority_is_trusted_and_no_other(tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    stranger.cert_pem.write_to_path(tmp_path / "other.pem")
    async with link_central(tls=context) as central:
        url = central.url.replace("http://127.0.0.1", "https://localhost")
        async with client_of(url, ca_file=tmp_path / "ca.pem") as client:
            assert isinstance(await client.submit([item("1")]), Ack)
            # The authority is read at each connection: a renewed one is noticed.
            (tmp_path / "ca.pem").write_bytes((tmp_path / "other.pem").read_bytes())
            central.next.append("cut")
            with pytest.raises(Unavailable):
                await client.submit([item("2")])
            with pytest.raises(Unavailable, match="certificate verify failed") as caught:
                await client.submit([item("2")])
            assert "ca_file" in (caught.value.hint or "")
        (tmp_path / "ca.pem").write_text("no certificate")
        async with client_of(url, ca_file=tmp_path / "ca.pem") as client:
            with pytest.raises(ConfigError):
                await client.submit([item("2")])
    assert list(central.stored) == ["id-1"]
    assert central.tokens == [f"Bearer {TOKEN}"]
