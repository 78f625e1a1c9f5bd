"""The demo's catcher of mails, chats and text messages.

One mailbox accepts everything, one defers each mail twice, and one does not exist. The demo's providers hand over chats
and text messages.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import TypeVar

from fieldpost.core import ids
from fieldpost.core.errors import ConfigError
from fieldpost.demo.chats import ReceivedChat
from fieldpost.demo.inbox import ID_HEADER
from fieldpost.demo.mail_store import MailStore
from fieldpost.demo.scenario import FLAKY, GONE, MAILBOXES, REFUSALS
from fieldpost.run.listening import explain
from fieldpost.testing.mail import MailServer, ReceivedMail

T = TypeVar("T")

ARRIVALS_MAX = 10_000


class Catcher:
    """Receives and stores mails and chats, and knows when each notification arrived."""

    def __init__(self, store: MailStore) -> None:
        self.store = store
        self._arrivals: dict[str, datetime] = {}

    def arrived_at(self, notification_id: str) -> datetime | None:
        """The time of arrival of its mail or message, if that was in this run."""
        return self._arrivals.get(notification_id)

    @asynccontextmanager
    async def listening(self, port: int) -> AsyncIterator[int]:
        """Listen; yields the port. Raises OSError if the port is in use."""
        server = MailServer(port=port, on_mail=self._take)
        flaky, gone = MAILBOXES[FLAKY], MAILBOXES[GONE]
        server.on("dot", address=flaky).reply(451, "4.2.1 Mailbox busy, try again later").times(REFUSALS, per="message")
        server.on("rcpt", address=gone).reply(550, "5.1.1 No such user here")
        await server.start()
        try:
            yield server.port
        finally:
            await server.stop()

    def take_chat(self, chat: ReceivedChat) -> None:
        """Store a message that a provider accepted. Raises OSError."""
        self.store.add(chat)
        self._note(chat.notification_id, chat.received_at)

    def _take(self, mail: ReceivedMail) -> None:
        self.store.add(mail)
        self._note(mail.header(ID_HEADER), mail.received_at)

    def _note(self, found: str | None, received_at: datetime) -> None:
        if found is not None and ids.is_id(found):
            self._arrivals.setdefault(found, received_at)
            if len(self._arrivals) > ARRIVALS_MAX:
                del self._arrivals[next(iter(self._arrivals))]


async def listen(
    stack: AsyncExitStack, listening: Callable[[int], AbstractAsyncContextManager[T]], port: int, *, may_move: bool
) -> T:
    """Listen until the stack is closed. Raises ConfigError if the port is in use, unless `may_move`."""
    try:
        return await stack.enter_async_context(listening(port))
    except OSError as error:
        if not may_move:
            reason, hint = explain(error, port)
            raise ConfigError("demo.port", f"cannot listen on port {port}: {reason}", hint=hint) from None
        return await stack.enter_async_context(listening(0))
