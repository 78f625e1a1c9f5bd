"""The mail server in its own thread."""

from collections.abc import Callable, Sequence
from typing import Any

from fieldpost.testing.mail.message import ReceivedMail
from fieldpost.testing.mail.record import ConnectionRecord
from fieldpost.testing.mail.rules import MailRule
from fieldpost.testing.mail.script import MailEvent, SmtpVerb
from fieldpost.testing.mail.server import MailServer
from fieldpost.testing.thread import ServerThread


class MailServerThread(ServerThread[MailServer]):
    """A `MailServer` (with the same options) for tests without an event loop.

    with MailServerThread() as server:
        server.on("dot").close().times(1)
        ...
        mails = server.received(1000, timeout_s=60)
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(MailServer(**options))

    @property
    def host(self) -> str:
        return self._server.host

    def on(
        self,
        verb: SmtpVerb,
        *,
        address: str | Callable[[str], bool] | None = None,
        when: Callable[[MailEvent], bool] | None = None,
    ) -> MailRule:
        """Add a rule. If mails are already arriving, add and configure it in one `call`."""
        return self._server.on(verb, address=address, when=when)

    @property
    def mails(self) -> Sequence[ReceivedMail]:
        return self.call(lambda server: server.mails)

    @property
    def mail_count(self) -> int:
        return self._server.mail_count

    @property
    def connections(self) -> Sequence[ConnectionRecord]:
        return self.call(lambda server: server.connections)

    def received(self, count: int = 1, *, to: str | None = None, timeout_s: float = 30) -> list[ReceivedMail]:
        return self._run(self._server.received(count, to=to, timeout_s=timeout_s))

    def saw(self, verb: SmtpVerb, count: int = 1, *, timeout_s: float = 30) -> None:
        self._run(self._server.saw(verb, count, timeout_s=timeout_s))

    def idle(self, *, timeout_s: float = 30) -> None:
        self._run(self._server.idle(timeout_s=timeout_s))
