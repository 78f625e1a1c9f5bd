"""What sites speak to: the WebSockets they open, POST where a proxy forbids that, and the status of what they sent.

Two WebSockets, one for data and one for control, so that health reports and commands never wait behind a backlog: they
share neither a queue nor an allowance.

A frame that cannot be understood is refused and never fatal: a newer site may say things that this version does not
know. What the store cannot take now, or the site may not send now, is refused with a time to wait, and the connection
stays.
"""

import asyncio
from contextlib import suppress

from starlette.websockets import WebSocket

from fieldpost.core.errors import InvalidInput, Unavailable
from fieldpost.core.times import to_text
from fieldpost.front.allowance import LinkKind
from fieldpost.front.backend import Backend
from fieldpost.front.body import check_content_type, read_body
from fieldpost.front.connections import ControlLink, PolledLink
from fieldpost.front.http.call import ApiAnswer, Call
from fieldpost.front.link import control as control_messages
from fieldpost.front.link.conversation import SiteConversation, Unfit, welcome
from fieldpost.link.codec import UNFIT, decode, decode_as, salvage
from fieldpost.link.messages import FRAME_BYTES_MAX, Ack, Hello, LinkMessage, Said, StatusAnswer, Submit


async def data(websocket: WebSocket, backend: Backend) -> None:
    """`/link/v1/data`: one site's connection for what it submits, for as long as it lasts."""

    async def converse(site: str) -> None:
        async def answer(message: LinkMessage, unfit: Unfit) -> LinkMessage | None:
            match message:
                case Submit():
                    return await _take(message, unfit, site, backend)
                case Hello():
                    await _saw(backend, site)
                    return None
                case _:
                    raise InvalidInput(UNFIT, f"central does not take {type(message).__name__}")

        await SiteConversation(websocket, site, LinkKind.DATA, backend, answer).run()

    await welcome(websocket, LinkKind.DATA, backend, converse)


async def control(websocket: WebSocket, backend: Backend) -> None:
    """`/link/v1/control`: one site's connection for health reports, telemetry and commands."""

    async def converse(site: str) -> None:
        link = ControlLink(site, websocket.send_bytes)

        async def answer(message: LinkMessage, unfit: Unfit) -> LinkMessage | None:
            if not isinstance(message, Hello):
                return await control_messages.handle(message, site, backend)
            is_first, link.hello = link.hello is None, message
            await _saw(backend, site)
            if is_first:
                await control_messages.connected(site, link, backend)
            return None

        with backend.commands.connections.held(link):
            try:
                await SiteConversation(websocket, site, LinkKind.CONTROL, backend, answer).run()
            finally:
                link.end()
                await control_messages.disconnected(site, link, backend)

    await welcome(websocket, LinkKind.CONTROL, backend, converse)


async def submit(call: Call) -> ApiAnswer:
    """`POST /link/v1/submit`: one Submit, answered by its Ack."""
    allowances = call.backend.allowances
    check_content_type(call.request, "application/json")
    with allowances.connection(call.site, LinkKind.DATA):
        allowances.check(call.site, LinkKind.DATA)
        content = await read_body(call.request, FRAME_BYTES_MAX)
        allowances.charge(call.site, LinkKind.DATA, items=1, bytes=len(content))
        return ApiAnswer(await _take(*_read(content), call.site, call.backend))


async def control_by_post(call: Call) -> ApiAnswer:
    """`POST /link/v1/control`: one message of a site without WebSockets, answered by all that central has to say."""
    allowances, polled, site = call.backend.allowances, call.backend.polled, call.site
    check_content_type(call.request, "application/json")
    with allowances.connection(site, LinkKind.CONTROL):
        allowances.check(site, LinkKind.CONTROL)
        content = await read_body(call.request, FRAME_BYTES_MAX)
        allowances.charge(site, LinkKind.CONTROL, items=1, bytes=len(content))
        message = decode(content)
        link = polled.get(site)
        if link is None:
            link = polled[site] = PolledLink(site)
            # Between two questions there is nobody but this task to notice that the site asks no more.
            link.task = asyncio.create_task(_while_asked(link, call.backend))
        elif isinstance(message, Hello) and message.begins:
            # It has begun anew, before its silence was noticed: what it missed is due.
            await control_messages.connected(site, link, call.backend)
        if isinstance(message, Hello):
            link.hello = message
            await _saw(call.backend, site)
            return ApiAnswer(Said(tuple(link.take())))
        answer = await control_messages.handle(message, site, call.backend)
        return ApiAnswer(Said((*link.take(), *([] if answer is None else [answer]))))


async def status(call: Call) -> ApiAnswer:
    """`GET /link/v1/status/{notification_id}`: central's record, for the site that sent it and no other."""
    call.backend.allowances.check(call.site, LinkKind.DATA)
    call.backend.allowances.charge(call.site, LinkKind.DATA, items=1)
    n = await call.watch.notifications.of_site(call.path("notification_id"), call.site)
    return ApiAnswer(
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


async def _while_asked(link: PolledLink, backend: Backend) -> None:
    with backend.commands.connections.held(link):
        try:
            await control_messages.connected(link.site, link, backend)
            await link.until_silent()
        finally:
            link.end()
            del backend.polled[link.site]
            await control_messages.disconnected(link.site, link, backend)


def _read(content: bytes) -> tuple[Submit, Unfit]:
    try:
        return decode_as(content, Submit), {}
    except InvalidInput as error:
        salvaged = salvage(content) if error.code == UNFIT else None
        if salvaged is None:
            raise
        return salvaged


async def _take(message: Submit, unfit: Unfit, site: str, backend: Backend) -> Ack:
    # The message itself was charged as one.
    backend.allowances.charge(site, LinkKind.DATA, items=max(0, len(message.items) + len(unfit) - 1))
    ack = await backend.ingest.submit(site, message, unfit)
    await _saw(backend, site)
    return ack


async def _saw(backend: Backend, site: str) -> None:
    # A note for people; that it cannot be written now must not cost the sender its ack.
    with suppress(Unavailable):
        await backend.operate.sites.saw(site)
