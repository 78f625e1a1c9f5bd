"""The stream by which an open page hears of changes, over a real connection."""

import asyncio
import html
import re

import aiohttp
import pytest
from yarl import URL

from fieldpost.central.access.logins import Origin
from fieldpost.front import change_feed, server
from support.front import ADMIN, OPERATOR, Front, served
from support.visitor import visiting

COOKIE = "fieldpost-session"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_feed, "INTERVAL_S", 0.02)
    monkeypatch.setattr(change_feed, "KEEP_ALIVE_S", 0.2)


async def test_page_is_notified_of_every_change_of_a_notification(front: Front) -> None:
    async with served(front.app) as url, await listener(front, url) as stream:
        await heard(stream, "still here")
        parked = await front.park()
        await heard(stream, "notifications")
        await settled(stream)
        version = (await front.centre.get(parked)).version
        await front.operate.notifications.retry(OPERATOR, parked, version)
        await heard(stream, "notifications")
        await settled(stream)
        await front.operate.lists.remove(ADMIN, "ops")
        await heard(stream, "notifications")


async def test_page_is_notified_of_a_change_between_rendering_and_listening(front: Front) -> None:
    async with served(front.app) as url:
        async with visiting(front, "viewer") as visitor:
            page = (await visitor.client.get("/notifications")).text
        [since] = re.findall(r'data-since="([^"]*)"', page)
        await front.park()
        async with await listener(front, url, f"?{html.unescape(since)}") as stream:
            await heard(stream, "event: notifications")


async def test_logged_out_page_gets_no_more_updates(front: Front) -> None:
    async with served(front.app) as url, await listener(front, url) as stream:
        await heard(stream, "still here")
        await front.operate.users.log_out(ADMIN, "viewer")
        async with asyncio.timeout(20):
            rest = await stream.content.read()
        assert rest.count(b"event:") <= 1, "what logged him out is the last that he may hear of"


async def test_anonymous_caller_gets_no_updates(front: Front) -> None:
    async with (
        served(front.app) as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/live", allow_redirects=False) as answer,
    ):
        assert (answer.status, answer.headers["location"]) == (303, "/login?next=%2Flive")


async def test_central_stops_at_once_while_a_page_listens(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "GRACE_S", 60)
    async with served(front.app) as url:
        stream = await listener(front, url)
        await heard(stream, "still here")
        before = asyncio.get_running_loop().time()
    # Without being let go it would be waited for until the grace time is over.
    assert asyncio.get_running_loop().time() - before < 20
    await stream.__aexit__(None, None, None)


class Stream:
    """An open stream and the connection it came by."""

    def __init__(self, session: aiohttp.ClientSession, answer: aiohttp.ClientResponse) -> None:
        self._session = session
        self._answer = answer
        self.content = answer.content

    async def __aenter__(self) -> "Stream":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._answer.close()
        await self._session.close()


async def listener(front: Front, url: str, since: str = "") -> Stream:
    session = await front.operate.logins.log_in("viewer", front.password("viewer"), _somewhere())
    jar = aiohttp.CookieJar(unsafe=True)
    jar.update_cookies({COOKIE: session.token}, URL(url))
    client = aiohttp.ClientSession(cookie_jar=jar)
    answer = await client.get(f"{url}/live{since}")
    assert (answer.status, answer.content_type) == (200, "text/event-stream")
    assert "content-encoding" not in answer.headers, "what is gathered to be compressed comes late"
    return Stream(client, answer)


async def heard(stream: Stream, word: str) -> None:
    async with asyncio.timeout(20):
        async for line in stream.content:
            if word in line.decode():
                return
    raise AssertionError(f"the stream ended before {word!r}")


async def settled(stream: Stream) -> None:
    """Nothing changes any more."""
    await heard(stream, "still here")


def _somewhere() -> Origin:
    return Origin("127.0.0.1", "test")
