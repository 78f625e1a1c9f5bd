"""What sites speak to: the WebSockets they open, POST where a proxy forbids that, and the status of what they sent.

Two WebSockets, one for data and one for control, so that health reports and commands never wait behind a backlog: they
share neither a queue nor an allowance.

A frame that cannot be understood is refused and never fatal: a newer site may say things that this version does not
know. What the store cannot take now, or the site may not send now, is refused with a time to wait, and the connection
stays.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from starlette.websockets import WebSocket, WebSocketDisconnect

import fieldpost
from fieldpost.core.errors import Denied, FieldpostError, InvalidInput, Unavailable
from fieldpost.core.times import to_text
from fieldpost.front import auth
from fieldpost.front.allowance import Lane, TooMuch
from fieldpost.front.api import control as control_messages
from fieldpost.front.api.call import Answer, Call
from fieldpost.front.api.errors import problem, wait_of
from fieldpost.front.body import check_content_type, read_body
from fieldpost.front.guard import internal_refusal, report_bug
from fieldpost.front.links import ControlLink
from fieldpost.front.rooms import Rooms
from fieldpost.link.codec import UNFIT, compress, decode, decode_as, decompress, encode, salvage, seq_of
from fieldpost.link.messages import (
    FRAME_BYTES_MAX,
    PROTOCOL,
    ZLIB,
    Ack,
    Hello,
    Message,
    Refusal,
    Result,
    StatusAnswer,
    Submit,
)

M = TypeVar("M", bound=Message)

NO_LONGER_WELCOME = 1008


Answering = Callable[[Message, dict[int, Result]], Awaitable[bytes | None]]
"""What a connection makes of one message; the second are the items of a Submit that could not be read."""


async def data(websocket: WebSocket, rooms: Rooms) -> None:
    """`/link/v1/data`: one site's connection for what it submits, for as long as it lasts."""
    async with _welcomed(websocket, Lane.DATA, rooms) as site:

        async def answer(message: Message, unfit: dict[int, Result]) -> bytes | None:
            match message:
                case Submit():
                    return encode(await _take(message, unfit, site, rooms))
                case Hello():
                    await _saw(rooms, site)
                    return None
                case _:
                    raise InvalidInput(UNFIT, f"central does not take {type(message).__name__}")

        await _converse(websocket, site, Lane.DATA, rooms, answer)


async def control(websocket: WebSocket, rooms: Rooms) -> None:
    """`/link/v1/control`: one site's connection for health reports, telemetry and commands."""
    async with _welcomed(websocket, Lane.CONTROL, rooms) as site:
        link = ControlLink(site, websocket.send_bytes)

        async def answer(message: Message, unfit: dict[int, Result]) -> bytes | None:
            if isinstance(message, Hello):
                is_first, link.hello = link.hello is None, message
                await _saw(rooms, site)
                if is_first:
                    await control_messages.connected(site, link, rooms)
                return None
            reply = await control_messages.handle(message, site, rooms)
            if reply is not None:
                await link.send(reply)
            return None

        with rooms.links.held(link):
            try:
                await _converse(websocket, site, Lane.CONTROL, rooms, answer)
            finally:
                link.end()
                await control_messages.disconnected(site, link, rooms)


async def submit(call: Call) -> Answer:
    """`POST /link/v1/submit`: one Submit, answered by its Ack."""
    allowances = call.rooms.allowances
    check_content_type(call.request, "application/json")
    with allowances.connection(call.site, Lane.DATA):
        allowances.check(call.site, Lane.DATA)
        content = await read_body(call.request, FRAME_BYTES_MAX)
        allowances.charge(call.site, Lane.DATA, items=1, bytes=len(content))
        message, unfit = _read(content, lambda: decode_as(content, Submit))
        return Answer(await _take(message, unfit, call.site, call.rooms))


async def status(call: Call) -> Answer:
    """`GET /link/v1/status/{notification_id}`: central's record, for the site that sent it and no other."""
    call.rooms.allowances.check(call.site, Lane.DATA)
    call.rooms.allowances.charge(call.site, Lane.DATA, items=1)
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


@asynccontextmanager
async def _welcomed(websocket: WebSocket, lane: Lane, rooms: Rooms) -> AsyncIterator[str]:
    """Around an accepted connection: the site it is of. Whoever is not welcome gets an answer of HTTP instead."""
    try:
        site = await auth.site(websocket.headers, rooms.operate.accounts)
        with rooms.allowances.connection(site, lane):
            await websocket.accept()
            with suppress(WebSocketDisconnect):
                yield site
    except FieldpostError as error:
        await websocket.send_denial_response(problem(error))


async def _converse(websocket: WebSocket, site: str, lane: Lane, rooms: Rooms, answering: Answering) -> None:
    await websocket.send_bytes(encode(Hello(PROTOCOL, fieldpost.__version__, rooms.ingest.credits, accepts=(ZLIB,))))
    while True:
        frame = await websocket.receive()
        if frame["type"] == "websocket.disconnect":
            return
        content = frame.get("bytes")
        try:
            rooms.allowances.check(site, lane)
            rooms.allowances.charge(site, lane, items=1, bytes=len(frame.get("text") or content or b""))
            answer = await _answer(content, websocket, site, lane, rooms, answering)
        except TooMuch as error:
            # Neither read nor judged: a flood must not cost more than it takes to put it off.
            await websocket.send_bytes(encode(_refusal(error, content)))
            await rooms.allowances.pause()
        except Denied as error:
            # The token was revoked while the connection stood.
            await websocket.close(NO_LONGER_WELCOME, error.message)
            return
        else:
            if answer is not None:
                await websocket.send_bytes(answer)


async def _answer(
    content: bytes | None, websocket: WebSocket, site: str, lane: Lane, rooms: Rooms, answering: Answering
) -> bytes | None:
    """The answer to one frame; none to a greeting. Denied when the token is no longer a site's."""
    try:
        if content is None:
            raise InvalidInput(UNFIT, "only binary frames are taken")
        await auth.site(websocket.headers, rooms.operate.accounts)
        plain = decompress(content)
        rooms.allowances.charge(site, lane, bytes=max(0, len(plain) - len(content)))
        is_compressed, content = plain is not content, plain
        answer = await answering(*_read(plain, lambda: decode(plain)))
        # Whoever found it worth compressing has a line on which the answer is worth it too.
        return compress(answer) if answer is not None and is_compressed else answer
    except (Denied, WebSocketDisconnect):
        raise
    except FieldpostError as error:
        return encode(_refusal(error, content))
    except Exception as error:
        return internal_refusal(report_bug(error, path=websocket.url.path), seq_of(content or b""))


def _read(content: bytes, decoded: Callable[[], M]) -> tuple[M | Submit, dict[int, Result]]:
    """The message, and of a Submit the answers to those items that could not be read, by their places."""
    try:
        return decoded(), {}
    except InvalidInput as error:
        salvaged = salvage(content) if error.code == UNFIT else None
        if salvaged is None:
            raise
        return salvaged


async def _take(message: Submit, unfit: dict[int, Result], site: str, rooms: Rooms) -> Ack:
    # The message itself was charged as one.
    rooms.allowances.charge(site, Lane.DATA, items=max(0, len(message.items) + len(unfit) - 1))
    ack = await rooms.ingest.submit(site, message, unfit)
    await _saw(rooms, site)
    return ack


async def _saw(rooms: Rooms, site: str) -> None:
    # A note for people; that it cannot be written now must not cost the sender its ack.
    with suppress(Unavailable):
        await rooms.operate.sites.saw(site)


def _refusal(error: FieldpostError, content: bytes | None) -> Refusal:
    wait_s = wait_of(error) if isinstance(error, Unavailable) else None
    return Refusal(error.code, error.message, seq_of(content or b""), wait_s)
