"""The catcher's web inbox: received mails, chat messages and text messages, newest first.

Pages are plain HTML; a small script polls the list every two seconds and replaces it after a change. Messages are shown
as text, never as markup.
"""

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

from aiohttp import web
from aiohttp.typedefs import Handler
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fieldpost.core.ids import is_id
from fieldpost.core.times import to_text
from fieldpost.demo.chats import ReceivedChat
from fieldpost.demo.mail_store import Caught
from fieldpost.link.endpoint import is_plain

ID_HEADER = "X-Fieldpost-Id"
PAGE_ROWS = 100

_HERE = Path(__file__).parent
_ADDRESS_CHARACTERS_MAX = 320
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class Mailbox(Protocol):
    """A `MailStore`, or a `MailServer`."""

    @property
    def mails(self) -> Sequence[Caught]: ...


@dataclass(frozen=True, slots=True)
class InboxRow:
    """One message in the list."""

    number: int
    kind: str
    """`mail`, or the provider: `teams`, `slack`, `telegram`, `sms`."""
    received_at: datetime
    sender: str
    recipients: tuple[str, ...]
    subject: str
    message_id: str | None
    x_fieldpost_id: str | None


class Inbox:
    """The web application over a mailbox.

    `console_url` is where the console's pages begin: a mail's id leads to `{console_url}/notifications/{id}`.
    `smtp_address` (`127.0.0.1:1025`) is shown in an empty inbox.
    """

    def __init__(self, mailbox: Mailbox, console_url: str | None = None, smtp_address: str | None = None) -> None:
        self._mailbox = mailbox
        self._pages = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._pages.filters["exact_time"] = to_text
        self._pages.globals |= {
            "console_url": console_url.rstrip("/") if console_url else None,
            "smtp_address": smtp_address,
        }

    @asynccontextmanager
    async def listening(self, port: int = 0) -> AsyncIterator[str]:
        """Serve the inbox; yields its URL. Raises OSError if the port is in use."""
        runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", port)
            await site.start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    def application(self) -> web.Application:
        application = web.Application(middlewares=[_only_loopback])
        application.router.add_get("/", self._list)
        application.router.add_get("/mails.json", self._json)
        application.router.add_get(r"/mails/{number:\d{1,15}}", self._mail)
        application.router.add_static("/static", _HERE / "static")
        application.on_response_prepare.append(_harden)
        return application

    async def _list(self, request: web.Request) -> web.StreamResponse:
        try:
            address, before = _query(request)
        except ValueError as error:
            return self._refusal(400, str(error))
        found = [mail for mail in reversed(self._mailbox.mails) if _concerns(mail, address)]
        newer = [mail for mail in found if before is not None and mail.number >= before]
        shown = found[len(newer) : len(newer) + PAGE_ROWS]
        has_older = len(found) > len(newer) + len(shown)
        return self._page(
            request,
            "inbox.html",
            rows=[_row(mail, address) for mail in shown],
            address=address,
            found_count=len(found),
            total_count=len(self._mailbox.mails),
            older_url=_list_url(address, shown[-1].number) if has_older else None,
            newest_url=_list_url(address) if newer else None,
        )

    async def _mail(self, request: web.Request) -> web.StreamResponse:
        number = int(request.match_info["number"])
        mails = self._mailbox.mails
        position = next((n for n, mail in enumerate(mails) if mail.number == number), None)
        if position is None:
            return self._refusal(404, f"Message {number} does not exist. The inbox keeps only the newest messages.")
        mail = mails[position]
        is_chat = isinstance(mail, ReceivedChat)
        return self._page(
            request,
            "chat.html" if is_chat else "mail.html",
            row=_row(mail),
            mail=mail,
            source=_source(mail),
            older=mails[position - 1] if position > 0 else None,
            newer=mails[position + 1] if position + 1 < len(mails) else None,
        )

    async def _json(self, request: web.Request) -> web.StreamResponse:
        try:
            address, before = _query(request)
        except ValueError as error:
            return web.json_response({"error": str(error)}, status=400)
        mails = [mail for mail in reversed(self._mailbox.mails) if _concerns(mail, address)]
        rows = [_row(mail) for mail in mails if before is None or mail.number < before]
        return web.json_response({"mails": [asdict(row) | {"received_at": to_text(row.received_at)} for row in rows]})

    def _page(self, request: web.Request, name: str, **values: Any) -> web.Response:
        body = self._pages.get_template(name).render(values).encode("utf-8", "replace")
        etag = hashlib.sha256(body).hexdigest()
        if any(known.value == etag for known in request.if_none_match or ()):
            # The script polls every two seconds; mostly nothing has changed.
            response = web.Response(status=304)
        else:
            response = web.Response(body=body, content_type="text/html", charset="utf-8")
        response.etag = etag
        return response

    def _refusal(self, status: int, reason: str) -> web.Response:
        body = self._pages.get_template("refusal.html").render(status=status, reason=reason)
        return web.Response(text=body, status=status, content_type="text/html")


def _query(request: web.Request) -> tuple[str, int | None]:
    """The address filter, and the number below which the page starts. Raises ValueError."""
    address = request.query.get("address", "").strip()
    if len(address) > _ADDRESS_CHARACTERS_MAX:
        raise ValueError(f"address: at most {_ADDRESS_CHARACTERS_MAX} characters")
    before = request.query.get("before")
    if before is not None and not (before.isascii() and before.isdecimal() and len(before) <= 15):
        raise ValueError("before: the number of a message")
    return address, None if before is None else int(before)


def _concerns(mail: Caught, address: str) -> bool:
    if isinstance(mail, ReceivedChat):
        return any(address.casefold() in party.casefold() for party in (mail.kind, mail.target))
    return any(address.casefold() in party.casefold() for party in (mail.sender, *mail.recipients))


def _row(mail: Caught, address: str = "") -> InboxRow:
    if isinstance(mail, ReceivedChat):
        return InboxRow(
            number=mail.number,
            kind=mail.kind.value,
            received_at=mail.received_at,
            sender=mail.kind.label,
            recipients=(mail.target,),
            subject=mail.subject,
            message_id=None,
            x_fieldpost_id=mail.notification_id or None,
        )
    fieldpost_id = mail.header(ID_HEADER)
    return InboxRow(
        number=mail.number,
        kind="mail",
        received_at=mail.received_at,
        sender=mail.header("From") or mail.sender,
        # The page shows the first one: the address of the filter, if it is a recipient.
        recipients=tuple(sorted(mail.recipients, key=lambda recipient: address.casefold() not in recipient.casefold())),
        subject=mail.subject,
        message_id=mail.message_id,
        # Only valid ids become links to the console: any sender can write this header.
        x_fieldpost_id=fieldpost_id if fieldpost_id and is_id(fieldpost_id) else None,
    )


def _source(mail: Caught) -> str:
    if isinstance(mail, ReceivedChat):
        return mail.source
    return mail.raw.decode("utf-8", "replace").replace("\r\n", "\n")


def _list_url(address: str, before: int | None = None) -> str:
    query = {name: value for name, value in (("address", address), ("before", before)) if value}
    return f"/?{urlencode(query)}" if query else "/"


@web.middleware
async def _only_loopback(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse other host names: a page elsewhere could otherwise read the messages by DNS rebinding."""
    if is_plain(f"http://{request.host}"):
        return web.Response(status=403, text="The inbox is served to this machine only.\n")
    return await handler(request)


async def _harden(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
