"""The demo's mail catcher: one mailbox takes everything, one is busy twice for each mail, one is not there any more."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

from fieldpost.core import ids
from fieldpost.core.errors import ConfigError
from fieldpost.demo.inbox import ID_HEADER, Inbox
from fieldpost.demo.mail_store import MailStore
from fieldpost.demo.scenario import FLAKY, GONE, MAILBOXES, REFUSALS
from fieldpost.testing.mail import MailServer, ReceivedMail

ARRIVALS_MAX = 10_000


class Catcher:
    """Takes mails in, keeps them, and knows when each notification arrived."""

    def __init__(self, store: MailStore) -> None:
        self.store = store
        self._arrivals: dict[str, datetime] = {}

    def arrived_at(self, notification_id: str) -> datetime | None:
        """When its mail came in, if that was in this run."""
        return self._arrivals.get(notification_id)

    @asynccontextmanager
    async def listening(self, port: int, *, may_move: bool) -> AsyncIterator[int]:
        """The value is the port. Raises ConfigError when it is taken, unless another will do."""
        server = _misbehaving(MailServer(port=port, on_mail=self._take))
        try:
            await server.start()
        except OSError as error:
            if not may_move:
                raise _taken(port, error) from None
            server = _misbehaving(MailServer(on_mail=self._take))
            await server.start()
        try:
            yield server.port
        finally:
            await server.stop()

    def _take(self, mail: ReceivedMail) -> None:
        self.store.add(mail)
        found = mail.header(ID_HEADER)
        if found is not None and ids.is_id(found):
            self._arrivals.setdefault(found, mail.received_at)
            if len(self._arrivals) > ARRIVALS_MAX:
                del self._arrivals[next(iter(self._arrivals))]


@asynccontextmanager
async def inbox_listening(inbox: Inbox, port: int, *, may_move: bool) -> AsyncIterator[str]:
    """The value is the inbox's URL. Raises ConfigError when the port is taken, unless another will do."""
    try:
        serving = inbox.listening(port=port)
        url = await serving.__aenter__()
    except OSError as error:
        if not may_move:
            raise _taken(port, error) from None
        serving = inbox.listening()
        url = await serving.__aenter__()
    try:
        yield url
    finally:
        await serving.__aexit__(None, None, None)


def _misbehaving(server: MailServer) -> MailServer:
    flaky, gone = MAILBOXES[FLAKY], MAILBOXES[GONE]
    server.on("dot", address=flaky).reply(451, "4.2.1 Mailbox busy, try again later").times(REFUSALS, per="message")
    server.on("rcpt", address=gone).reply(550, "5.1.1 No such user here")
    return server


def _taken(port: int, error: OSError) -> ConfigError:
    # The event loop words it in its own way; the plain reason is in the number.
    reason = os.strerror(error.errno) if error.errno else str(error)
    return ConfigError("demo.port", f"cannot listen on port {port}: {reason}", hint="choose another")
