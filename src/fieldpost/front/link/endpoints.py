"""The endpoints of the link: WebSockets for data and control, POST where a proxy rejects WebSockets, and status.

A site has one WebSocket for data and one for control, with separate queues and quotas, so that health reports and
commands never wait behind a backlog.

An unknown frame is refused and never fatal, because a newer site may send messages that this version does not know. If
the store is unavailable or the site exceeds its quota, the Refusal contains a time to wait. The connection stays open
in all these cases.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from starlette.websockets import WebSocket

from fieldpost.core.errors import InvalidInput, Unavailable
from fieldpost.core.sites.node import SiteNode
from fieldpost.core.times import to_text
from fieldpost.front.allowance import LinkKind
from fieldpost.front.backend import Backend
from fieldpost.front.body import check_content_type, read_body
from fieldpost.front.connections import ControlLink, PolledLink
from fieldpost.front.http.call import ApiAnswer, Call
from fieldpost.front.link import control as control_messages
from fieldpost.front.link.conversation import SiteConversation, Unfit, welcome
from fieldpost.front.open_links import OpenLink
from fieldpost.link.codec import UNFIT, decode, decode_as, salvage
from fieldpost.link.messages import FRAME_BYTES_MAX, Ack, Hello, LinkMessage, Said, StatusAnswer, Submit


async def data(websocket: WebSocket, backend: Backend) -> None:
    """`/link/v1/data`: the connection on which a site submits notifications."""

    async def converse(sender: SiteNode, link: OpenLink) -> None:
        async def answer(message: LinkMessage, unfit: Unfit) -> LinkMessage | None:
            match message:
                case Submit():
                    return await _take(message, unfit, sender.site, backend)
                case Hello():
                    await _record_contact(backend, sender.site)
                    return None
                case _:
                    raise InvalidInput(UNFIT, f"central does not accept {type(message).__name__} on a data connection")

        await SiteConversation(websocket, sender, LinkKind.DATA, backend, link, answer).run()

    await welcome(websocket, LinkKind.DATA, backend, converse)


async def control(websocket: WebSocket, backend: Backend) -> None:
    """`/link/v1/control`: the connection of a site for health reports, telemetry and commands."""

    async def converse(sender: SiteNode, opened: OpenLink) -> None:
        link = ControlLink(sender, websocket.send_bytes, opened.check)

        async def answer(message: LinkMessage, unfit: Unfit) -> LinkMessage | None:
            if not isinstance(message, Hello):
                return await control_messages.handle(message, sender, backend)
            is_first, link.hello = link.hello is None, message
            await _record_contact(backend, sender.site)
            if is_first:
                await control_messages.connected(link, backend)
            return None

        with backend.commands.connections.held(link):
            try:
                await SiteConversation(websocket, sender, LinkKind.CONTROL, backend, opened, answer).run()
            finally:
                link.end()
                await control_messages.disconnected(link, backend)

    await welcome(websocket, LinkKind.CONTROL, backend, converse)


async def submit(call: Call) -> ApiAnswer:
    """`POST /link/v1/submit`: one Submit, answered by its Ack."""
    allowances = call.backend.allowances
    check_content_type(call.request, "application/json")
    with allowances.connection(call.site, LinkKind.DATA):
        allowances.check(call.site, LinkKind.DATA)
        content = await read_body(call.request, FRAME_BYTES_MAX)
        allowances.charge(call.site, LinkKind.DATA, items=1, bytes=len(content))
        charge_values = partial(allowances.charge_values, call.site, LinkKind.DATA)
        return ApiAnswer(await _take(*_read(content, charge_values), call.site, call.backend))


async def control_by_post(call: Call) -> ApiAnswer:
    """`POST /link/v1/control`: one message of a site without WebSockets, answered by all that central has to say."""
    allowances, polled, site = call.backend.allowances, call.backend.polled, call.site
    check_content_type(call.request, "application/json")
    with allowances.connection(site, LinkKind.CONTROL):
        allowances.check(site, LinkKind.CONTROL)
        content = await read_body(call.request, FRAME_BYTES_MAX)
        allowances.charge(site, LinkKind.CONTROL, items=1, bytes=len(content))
        message = decode(content, partial(allowances.charge_values, site, LinkKind.CONTROL))
        link = polled.get(call.sender)
        if link is None:
            link = polled[call.sender] = PolledLink(call.sender)
            # Between two polls only this task can notice that the site has stopped polling.
            link.task = asyncio.create_task(_until_silent(link, call.backend))
        elif isinstance(message, Hello) and message.begins:
            # The site restarted before its silence was noticed: send what it missed.
            await control_messages.connected(link, call.backend)
        if isinstance(message, Hello):
            link.hello = message
            await _record_contact(call.backend, site)
            return ApiAnswer(Said(tuple(link.take())))
        answer = await control_messages.handle(message, call.sender, call.backend)
        return ApiAnswer(Said((*link.take(), *([] if answer is None else [answer]))))


async def status(call: Call) -> ApiAnswer:
    """`GET /link/v1/status/{notification_id}`: central's record of a notification, only for the site that sent it."""
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


async def _until_silent(link: PolledLink, backend: Backend) -> None:
    with backend.commands.connections.held(link):
        try:
            await control_messages.connected(link, backend)
            await link.until_silent()
        finally:
            link.end()
            del backend.polled[link.sender]
            await control_messages.disconnected(link, backend)


def _read(content: bytes, on_values: Callable[[int], None]) -> tuple[Submit, Unfit]:
    try:
        return decode_as(content, Submit, on_values), {}
    except InvalidInput as error:
        salvaged = salvage(content) if error.code == UNFIT else None
        if salvaged is None:
            raise
        return salvaged


async def _take(message: Submit, unfit: Unfit, site: str, backend: Backend) -> Ack:
    # The message itself was already charged as one item.
    backend.allowances.charge(site, LinkKind.DATA, items=max(0, len(message.items) + len(unfit) - 1))
    ack = await backend.ingest.submit(site, message, unfit)
    await _record_contact(backend, site)
    return ack


async def _record_contact(backend: Backend, site: str) -> None:
    # Only for display: a failure to store it must not cost the sender its ack.
    with suppress(Unavailable):
        await backend.operate.sites.saw(site)
