"""What sites speak to, over a real socket: the WebSocket, POST, and the status of their own notifications."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import aiohttp
import pytest
from structlog.testing import capture_logs

from fieldpost.central.store.accounts import identities
from fieldpost.core.delivery.outcome import TransientFailure
from fieldpost.link.codec import decode, decode_as, encode
from fieldpost.link.credentials import prefix_of
from fieldpost.link.messages import FRAME_BYTES_MAX, PROTOCOL, Ack, Hello, LinkMessage, Refusal, StatusAnswer, Submit
from support.front import ADMIN, Front, served

UNKNOWN = "0198c8a0-0000-7000-8000-000000000001"


class Site:
    """A site's end, without the care that our own client takes."""

    def __init__(self, http: aiohttp.ClientSession, token: str) -> None:
        self._http = http
        self._headers = {"Authorization": f"Bearer {token}"}

    async def connect(self) -> "aiohttp.ClientWebSocketResponse[bool]":
        websocket = await self._http.ws_connect("/link/v1/data", headers=self._headers)
        assert isinstance(await receive(websocket), Hello)
        return websocket

    async def post(self, content: bytes, kind: str = "application/json") -> tuple[int, bytes]:
        headers = self._headers | {"Content-Type": kind}
        async with self._http.post("/link/v1/submit", data=content, headers=headers) as response:
            return response.status, await response.read()

    async def status(self, notification_id: str) -> tuple[int, bytes]:
        async with self._http.get(f"/link/v1/status/{notification_id}", headers=self._headers) as response:
            return response.status, await response.read()


@pytest.fixture
async def http(front: Front) -> AsyncIterator[aiohttp.ClientSession]:
    async with served(front.app) as url, aiohttp.ClientSession(base_url=url) as session:
        yield session


@pytest.fixture
def site(front: Front, http: aiohttp.ClientSession) -> Site:
    return Site(http, front.tokens["site"])


async def test_submit_is_answered_by_an_ack_of_the_stored_items(front: Front, site: Site) -> None:
    websocket = await site.connect()
    items = [front.centre.item(), front.centre.item()]
    for seq, verdict in ((1, "accepted"), (2, "duplicate")):
        await send(websocket, seq, items)
        ack = await receive(websocket)
        assert isinstance(ack, Ack)
        assert (ack.seq, [r.verdict for r in ack.results]) == (seq, [verdict] * 2)
    for item in items:
        assert (await front.centre.get(item.notification_id)).provenance.site == "plant-7"


async def test_a_greeting_needs_no_answer(front: Front, site: Site) -> None:
    websocket = await site.connect()
    await websocket.send_bytes(encode(Hello(PROTOCOL, "9.9")))
    await send(websocket, 1, [front.centre.item()])
    assert isinstance(await receive(websocket), Ack)


@pytest.mark.parametrize(
    ("frame", "code", "seq"),
    [
        (b"", "json.malformed", None),
        (b"\x00\xff", "json.not_utf8", None),
        (b'{"t":"tomorrow","seq":4}', "link.invalid", 4),
        (b'{"t":"submit","seq":5,"items":{"notification_id":7}}', "link.invalid", 5),
        (b'{"t":"submit","seq":6,"seq":7,"items":[]}', "json.duplicate_key", 7),
        (b'{"t":"ack","seq":8,"results":[],"credits":1}', "link.invalid", 8),
        (b'{"t":"\\ud800","seq":9,"items":[]}', "link.invalid", 9),
    ],
)
async def test_invalid_frame_is_rejected_and_the_connection_stays(
    front: Front, site: Site, frame: bytes, code: str, seq: int | None
) -> None:
    websocket = await site.connect()
    await websocket.send_bytes(frame)
    refusal = await receive(websocket)
    assert isinstance(refusal, Refusal)
    assert refusal.code == code
    assert refusal.seq in (seq, None)
    await websocket.send_str("text")
    assert isinstance(await receive(websocket), Refusal)
    await send(websocket, 10, [front.centre.item()])
    assert isinstance(await receive(websocket), Ack)


async def test_frame_over_the_limit_ends_the_connection_and_the_next_one_is_accepted(front: Front, site: Site) -> None:
    websocket = await site.connect()
    with suppress(ConnectionError, aiohttp.ClientError):  # central hangs up as soon as it reads the length
        await websocket.send_bytes(b" " * (FRAME_BYTES_MAX + 1))
    async with asyncio.timeout(20):
        message = await websocket.receive()
    assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
    again = await site.connect()
    await send(again, 1, [front.centre.item()])
    assert isinstance(await receive(again), Ack)


async def test_submit_without_the_store_is_rejected_with_a_time_to_wait(front: Front, site: Site) -> None:
    websocket = await site.connect()
    item = front.centre.item()
    await front.centre.execute("alter table tokens rename to tokens_elsewhere")
    await send(websocket, 1, [item])
    refusal = await receive(websocket)
    assert isinstance(refusal, Refusal)
    assert (refusal.seq, refusal.wait_s is not None) == (1, True)
    await front.centre.execute("alter table tokens_elsewhere rename to tokens")
    await send(websocket, 2, [item])
    ack = await receive(websocket)
    assert isinstance(ack, Ack)
    assert ack.results[0].verdict == "accepted"


@pytest.mark.parametrize("token", ["", "nonsense", "fp_site_aaaaaaaaaaaa_bbbb"])
async def test_link_requires_a_site_token(http: aiohttp.ClientSession, token: str) -> None:
    stranger = Site(http, token)
    with capture_logs() as logged, pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await stranger.connect()
    assert refused.value.status == 401
    assert [line["path"] for line in logged if line["event"] == "call.denied"] == ["/link/v1/data"], "people can see it"
    assert (await stranger.post(encode(Submit(1, ()))))[0] == 401
    assert (await stranger.status(UNKNOWN))[0] == 401


async def test_api_token_is_not_accepted_on_the_link(front: Front, http: aiohttp.ClientSession) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await Site(http, front.tokens["admin"]).connect()
    assert refused.value.status == 401


async def test_revoking_a_token_ends_its_connection_and_no_others(
    front: Front, http: aiohttp.ClientSession, site: Site
) -> None:
    other = Site(http, (await front.operate.sites.add(ADMIN, "plant-8")).token)
    mine, theirs = await site.connect(), await other.connect()
    prefix = prefix_of(front.tokens["site"], "site")
    assert prefix is not None
    assert await front.centre.store.write(identities.revoke_token, "site", prefix, front.centre.clock.now())
    item = front.centre.item()
    await send(mine, 1, [item])
    async with asyncio.timeout(20):
        await mine.receive()
    assert mine.close_code == 1008
    await send(theirs, 1, [item])
    ack = await receive(theirs)
    assert isinstance(ack, Ack)
    assert ack.results[0].verdict == "accepted", "what the revoked one sent was not taken"


async def test_post_answers_like_the_websocket(front: Front, site: Site) -> None:
    item = front.centre.item()
    status, body = await site.post(encode(Submit(3, (item,))))
    assert status == 200
    ack = decode_as(body, Ack)
    assert (ack.seq, ack.results[0].verdict) == (3, "accepted")
    assert (await site.post(b"nonsense"))[0] == 400
    assert (await site.post(encode(Submit(3, (item,))), "text/plain"))[0] == 415
    assert (await site.post(b" " * (FRAME_BYTES_MAX + 1)))[0] == 413


@pytest.mark.req("CMD-02")
async def test_site_can_read_the_status_of_its_notification_at_any_time(front: Front, site: Site) -> None:
    parked = await front.park("550 gone")
    discarded = await front.park("550 gone")
    delivered = await front.deliver()
    await front.centre.add_list("flaky")
    front.centre.adapter.answer("flaky", TransientFailure("451 busy"))
    retrying = await front.centre.send("flaky")
    await front.centre.deliver()
    await front.operate.notifications.discard(ADMIN, discarded, (await front.centre.get(discarded)).version)
    pending = await front.centre.send("ops")
    told = {}
    for notification_id in (pending, retrying, delivered, parked, discarded):
        status, body = await site.status(notification_id)
        assert status == 200
        told[notification_id] = answer = decode_as(body, StatusAnswer)
        n = await front.centre.get(notification_id)
        assert (answer.notification_id, answer.retry_count, answer.last_error) == (
            notification_id,
            n.retry_count,
            n.last_error,
        )
        assert (answer.delivered_at is None, answer.next_attempt_at is None) == (
            n.delivered_at is None,
            n.next_attempt_at is None,
        )
    assert [answer.status for answer in told.values()] == ["pending", "retrying", "delivered", "parked", "discarded"]


@pytest.mark.threat(1)
@pytest.mark.bad_input(7)
async def test_a_site_reads_the_status_of_its_own_notifications_only(
    front: Front, http: aiohttp.ClientSession, site: Site
) -> None:
    other = Site(http, (await front.operate.sites.add(ADMIN, "plant-8")).token)
    parked = await front.park("550 gone")
    status, body = await site.status(parked)
    assert status == 200
    answer = decode_as(body, StatusAnswer)
    assert (answer.status, answer.last_error) == ("parked", "ops@example.org: 550 gone")
    # Another's is exactly as unknown as one that never was.
    assert await other.status(parked) == await other.status(UNKNOWN) == await site.status(UNKNOWN)
    assert (await other.status(parked))[0] == 404


@pytest.mark.threat(1)
@pytest.mark.parametrize("way", ["websocket", "post"])
async def test_a_site_cannot_submit_as_another(front: Front, site: Site, way: str) -> None:
    item = front.centre.item(site="plant-8")
    if way == "post":
        _, body = await site.post(encode(Submit(1, (item,))))
        ack: LinkMessage = decode_as(body, Ack)
    else:
        websocket = await site.connect()
        await send(websocket, 1, [item])
        ack = await receive(websocket)
    assert isinstance(ack, Ack)
    assert (ack.results[0].verdict, ack.results[0].code) == ("rejected", "submit.other_site")
    assert (await site.status(item.notification_id))[0] == 404


async def test_central_records_the_last_contact_of_a_site(front: Front, site: Site) -> None:
    [before] = await front.operate.sites.all()
    assert before.last_seen_at is None
    await site.post(encode(Submit(1, ())))
    [after] = await front.operate.sites.all()
    assert after.last_seen_at == front.centre.clock.now()


async def send(websocket: "aiohttp.ClientWebSocketResponse[bool]", seq: int, items: Sequence[object]) -> None:
    await websocket.send_bytes(encode(Submit(seq, tuple(items))))  # type: ignore[arg-type]


async def receive(websocket: "aiohttp.ClientWebSocketResponse[bool]") -> LinkMessage:
    async with asyncio.timeout(20):
        return decode(await websocket.receive_bytes())
