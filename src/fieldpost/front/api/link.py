"""What sites speak to: the WebSocket they open, POST where a proxy forbids that, and the status of what they sent.

A frame that cannot be understood is refused and never fatal: a newer site may say things that this version does not
know. What the store cannot take now is refused with a time to wait, and the connection stays.
"""

from contextlib import suppress

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

import fieldpost
from fieldpost.core.errors import Denied, FieldpostError, InvalidInput, Unavailable
from fieldpost.core.times import to_text
from fieldpost.front import auth
from fieldpost.front.api.call import Answer, Call
from fieldpost.front.api.errors import RETRY_AFTER_S, problem
from fieldpost.front.body import check_content_type, read_body
from fieldpost.front.guard import internal_refusal, report_bug
from fieldpost.front.rooms import Rooms
from fieldpost.link.codec import decode, decode_as, encode
from fieldpost.link.messages import FRAME_BYTES_MAX, PROTOCOL, Hello, Refusal, StatusAnswer, Submit

TOO_BIG = 1009
"""WebSocket close code of a frame over the limit."""
NO_LONGER_WELCOME = 1008


class _Numbered(msgspec.Struct):
    seq: int


async def data(websocket: WebSocket, rooms: Rooms) -> None:
    """`/link/v1/data`: one site's connection, for as long as it lasts."""
    try:
        await auth.site(websocket.headers, rooms.operate.accounts)
    except FieldpostError as error:
        await websocket.send_denial_response(problem(error))
        return
    await websocket.accept()
    with suppress(WebSocketDisconnect):
        await websocket.send_bytes(encode(Hello(PROTOCOL, fieldpost.__version__, rooms.ingest.credits)))
        while True:
            frame = await websocket.receive()
            if frame["type"] == "websocket.disconnect":
                return
            content = frame.get("bytes")
            if content is not None and len(content) > FRAME_BYTES_MAX:
                await websocket.close(TOO_BIG, f"at most {FRAME_BYTES_MAX} bytes")
                return
            try:
                answer = await _answer(content, websocket, rooms)
            except Denied as error:
                # The token was revoked while the connection stood.
                await websocket.close(NO_LONGER_WELCOME, error.message)
                return
            if answer is not None:
                await websocket.send_bytes(answer)


async def submit(call: Call) -> Answer:
    """`POST /link/v1/submit`: one Submit, answered by its Ack."""
    check_content_type(call.request, "application/json")
    message = decode_as(await read_body(call.request, FRAME_BYTES_MAX), Submit)
    ack = await call.rooms.ingest.submit(call.site, message)
    await _saw(call.rooms, call.site)
    return Answer(ack)


async def status(call: Call) -> Answer:
    """`GET /link/v1/status/{notification_id}`: central's record, for the site that sent it and no other."""
    n = await call.watch.notifications.of_site(call.path("notification_id"), call.site)
    return Answer(
        StatusAnswer(
            notification_id=n.notification_id,
            status=n.status.value,
            retry_count=n.retry_count,
            last_error=n.last_error,
            enqueued_at=to_text(n.site_enqueued_at) if n.site_enqueued_at else n.site_enqueued_text,
            created_at=to_text(n.created_at),
            next_attempt_at=to_text(n.next_attempt_at) if n.next_attempt_at else None,
            delivered_at=to_text(n.delivered_at) if n.delivered_at else None,
        )
    )


async def _answer(content: bytes | None, websocket: WebSocket, rooms: Rooms) -> bytes | None:
    """The answer to one frame; none to a greeting. Denied when the token is no longer a site's."""
    if content is None:
        return encode(Refusal("link.invalid", "only binary frames are taken"))
    try:
        site = await auth.site(websocket.headers, rooms.operate.accounts)
        match decode(content):
            case Submit() as message:
                ack = await rooms.ingest.submit(site, message)
                await _saw(rooms, site)
                return encode(ack)
            case Hello():
                await _saw(rooms, site)
                return None
            case other:
                raise InvalidInput("link.invalid", f"central does not take {type(other).__name__}")
    except Denied:
        raise
    except Unavailable as error:
        return encode(Refusal(error.code, error.message, _seq_of(content), RETRY_AFTER_S))
    except FieldpostError as error:
        return encode(Refusal(error.code, error.message, _seq_of(content)))
    except Exception as error:
        return internal_refusal(report_bug(error, path=websocket.url.path), _seq_of(content))


async def _saw(rooms: Rooms, site: str) -> None:
    # A note for people; that it cannot be written now must not cost the sender its ack.
    with suppress(Unavailable):
        await rooms.operate.sites.saw(site)


def _seq_of(content: bytes) -> int | None:
    """The number of a message that could not be read as a whole, so that its sender knows which one was refused."""
    try:
        return msgspec.json.decode(content, type=_Numbered).seq
    except msgspec.DecodeError:
        return None
