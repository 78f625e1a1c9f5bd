"""Where a notification stands, asked at the site: from the buffer, from the box, else from central."""

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme
from aiohttp import web

from fieldpost import Site
from fieldpost.core.errors import InvalidInput, Unavailable
from fieldpost.core.ids import new_id
from fieldpost.core.sites.forwarding import Box, TryAgain
from fieldpost.link import status as link_status
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.messages import StatusAnswer
from fieldpost.link.status import ask_status
from fieldpost.site.notify import NotificationStatus
from support.link_central import LinkCentral, link_central
from support.site_folders import TOKEN, make_site

NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)
SOME_ID = new_id(NOW, bytes(10))


@pytest.fixture
async def central() -> AsyncIterator[LinkCentral]:
    async with link_central() as central:
        yield central


@pytest.fixture
def site(tmp_path: Path, central: LinkCentral) -> Site:
    return make_site(tmp_path / "site", central.url)


async def ask(site: Site, notification_id: str) -> NotificationStatus:
    """As a script would, in a thread that has no event loop."""
    return await asyncio.to_thread(site.notify.status, notification_id)


@pytest.mark.req("API-03", "API-04", "LIF-01", "RES-01")
async def test_a_buffered_notification_is_forwarding_and_central_is_not_asked(site: Site, central: LinkCentral) -> None:
    notification_id = site.notify.to("ops").send("s", "b")
    answer = await ask(site, notification_id)
    assert (answer.status, answer.retry_count, answer.last_error) == ("forwarding", 0, None)
    assert answer.enqueued_at is not None
    assert central.status_asked == []


async def test_status_of_a_buffered_notification_has_failed_attempts(site: Site) -> None:
    notification_id = site.notify.to("ops").send("s", "b")
    site._buffer.settle([(notification_id, TryAgain(NOW, "central is full"))], NOW)
    answer = await ask(site, notification_id)
    assert (answer.status, answer.retry_count, answer.last_error) == ("forwarding", 1, "central is full")
    assert answer.next_attempt_at == NOW


@pytest.mark.req("DEC-13")
async def test_notification_in_the_box_is_rejected_with_its_reason(site: Site, central: LinkCentral) -> None:
    notification_id = site.notify.to("ops").send("s", "b")
    site._buffer.settle([(notification_id, Box("notification.conflict", "another has this id"))], NOW)
    answer = await ask(site, notification_id)
    assert answer.status == "rejected"
    assert answer.last_error == "notification.conflict: another has this id"
    assert central.status_asked == []


@pytest.mark.req("API-03", "API-05", "RES-02")
async def test_status_of_a_forwarded_notification_is_requested_with_the_site_token(
    site: Site, central: LinkCentral
) -> None:
    central.statuses[SOME_ID] = StatusAnswer(
        SOME_ID,
        "delivered",
        2,
        "451 try later",
        "2026-11-15T08:00:00.000000Z",
        "2026-11-15T08:00:01.000000Z",
        None,
        "2026-11-15T08:05:00.000000Z",
    )
    answer = await ask(site, SOME_ID)
    assert answer == NotificationStatus(
        answer.notification_id,
        "delivered",
        2,
        "451 try later",
        NOW,
        datetime(2026, 11, 15, 8, 5, tzinfo=UTC),
        None,
    )
    assert answer.is_delivered
    assert central.tokens == [f"Bearer {TOKEN}"]


@pytest.mark.req("RES-01")
@pytest.mark.bad_input(7)
async def test_id_unknown_everywhere_is_unknown(site: Site) -> None:
    assert (await ask(site, SOME_ID)).status == "unknown"


@pytest.mark.bad_input(7)
@pytest.mark.parametrize(
    "text", ["", "x", SOME_ID.upper(), "{" + SOME_ID + "}", SOME_ID.replace("-", ""), "0" * 36, "../../x", 5, None]
)
async def test_malformed_id_is_rejected_without_a_request(site: Site, central: LinkCentral, text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await ask(site, text)
    assert caught.value.field == "notification_id"
    assert central.status_asked == []


@pytest.mark.parametrize("status", [401, 403, 302, 429, 500, 502, 503])
async def test_no_usable_answer_is_unavailable_and_never_unknown(site: Site, central: LinkCentral, status: int) -> None:
    central.status_response = lambda: web.Response(status=status, headers={"Location": "/elsewhere"})
    with pytest.raises(Unavailable) as caught:
        await ask(site, SOME_ID)
    assert str(status) in caught.value.message


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"status":"delivered"}', b"\xff", b'{"a":' * 5000, b"x" * 100_000]
)
async def test_an_answer_that_cannot_be_read_is_unavailable(site: Site, central: LinkCentral, body: bytes) -> None:
    central.status_response = lambda: web.Response(body=body)
    with pytest.raises(Unavailable):
        await ask(site, SOME_ID)


def test_an_unreachable_central_is_unavailable(tmp_path: Path) -> None:
    site = make_site(tmp_path / "site")
    with pytest.raises(Unavailable) as caught:
        site.notify.status(SOME_ID)
    assert caught.value.code == "link.unreachable"


def test_site_without_a_usable_token_file_reports_it(tmp_path: Path) -> None:
    from fieldpost.core.errors import ConfigError

    site = make_site(tmp_path / "site")
    (tmp_path / "site" / "token").unlink()
    with pytest.raises(ConfigError, match=r"the token file .* does not exist"):
        site.notify.status(SOME_ID)


@contextmanager
def dripping_server() -> Iterator[str]:
    """Accepts, then answers one byte now and then, for ever."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                for byte in b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 10_000:
                    if stop.wait(0.02):
                        return
                    try:
                        connection.send(bytes([byte]))
                    except OSError:
                        return

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stop.set()
            thread.join()


def test_a_dripping_answer_ends_at_the_deadline() -> None:
    with dripping_server() as url:
        began = time.monotonic()
        with pytest.raises(Unavailable) as caught:
            ask_status(Endpoint(url, TOKEN), SOME_ID, deadline_s=0.5)
        assert caught.value.code == "link.timeout"
        assert time.monotonic() - began < 20, "of the two hundred that it drips"
    assert link_status.DEADLINE_S <= 10


async def test_central_may_use_a_private_authority(tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    stranger.cert_pem.write_to_path(tmp_path / "stranger.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    central = LinkCentral()
    central.statuses[SOME_ID] = StatusAnswer(SOME_ID, "pending")
    app = web.Application()
    app.router.add_get("/link/v1/status/{id}", central.serve_status)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "localhost", 0, ssl_context=context).start()
    url = f"https://localhost:{runner.addresses[0][1]}"
    try:
        trusting = Endpoint(url, TOKEN, tmp_path / "ca.pem")
        assert (await asyncio.to_thread(ask_status, trusting, SOME_ID)).status == "pending"
        for doubting in (Endpoint(url, TOKEN), Endpoint(url, TOKEN, tmp_path / "stranger.pem")):
            with pytest.raises(Unavailable, match=r"(?i)certificate"):
                await asyncio.to_thread(ask_status, doubting, SOME_ID)
    finally:
        await runner.cleanup()
