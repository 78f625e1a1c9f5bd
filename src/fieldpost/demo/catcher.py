"""The demo's mail catcher: one mailbox accepts everything, one defers each mail twice, one does not exist."""

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
    """Receives and stores mails, and knows when each notification arrived."""

    def __init__(self, store: MailStore) -> None:
        self.store = store
        self._arrivals: dict[str, datetime] = {}

    def arrived_at(self, notification_id: str) -> datetime | None:
        """The time of arrival of its mail, if that was in this run."""
        return self._arrivals.get(notification_id)

    @asynccontextmanager
    async def listening(self, port: int, *, may_move: bool) -> AsyncIterator[int]:
        """Listen; yields the port. Raises ConfigError if the port is in use, unless `may_move`."""
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
    """Serve the inbox; yields its URL. Raises ConfigError if the port is in use, unless `may_move`."""
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
    # The event loop rewrites the message; take the plain reason from the number.
    reason = os.strerror(error.errno) if error.errno else str(error)
    return ConfigError("demo.port", f"cannot listen on port {port}: {reason}", hint="choose another port")
