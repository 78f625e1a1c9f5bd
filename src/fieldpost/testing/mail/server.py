"""The mail server for tests and the demo: it behaves correctly unless a rule says otherwise.

    async with MailServer() as server:
        server.on("rcpt", address="flaky@plant.example").reply(451, "4.2.1 busy").times(2)
        ...                                       # something sends to server.host, server.port
        mails = await server.received(1)
        assert mails[0].subject == "Pump 3 is hot"

See `rules.py` for the rules of `on`, `message.py` for received mails and `record.py` for connections.
"""

import asyncio
import ssl
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal

from fieldpost.clock import Clock, SystemClock
from fieldpost.testing.loopback import LoopbackServer
from fieldpost.testing.mail.message import ReceivedMail
from fieldpost.testing.mail.offer import EXTENSIONS, MECHANISMS, AuthCheck, Limits, MailHook, Offer
from fieldpost.testing.mail.record import ConnectionRecord, MailRecord
from fieldpost.testing.mail.rules import MailRule
from fieldpost.testing.mail.script import MailEvent, SmtpVerb
from fieldpost.testing.mail.session import SmtpServerSession
from fieldpost.testing.mail.wire import ServerWire
from fieldpost.testing.thread import ServerThread

_GRACE_S = 1.0


class MailServer(LoopbackServer):
    """An SMTP server on loopback."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        hostname: str = "mail.example",
        extensions: Iterable[str] = EXTENSIONS,
        tls: ssl.SSLContext | None = None,
        tls_mode: Literal["starttls", "implicit"] = "starttls",
        auth: AuthCheck | None = None,
        auth_mechanisms: Iterable[str] = MECHANISMS,
        is_auth_required: bool = False,
        on_mail: MailHook | None = None,
        keep_raw: bool = True,
        drops_pipelined: bool = False,
        limits: Limits | None = None,
        clock: Clock | None = None,
    ) -> None:
        """
        `port` 0 picks a free port, which the server keeps over stop and start. `tls` contains the certificate, used by
        STARTTLS or from the first byte. `auth` checks credentials; AUTH is offered if it is given, and only after
        STARTTLS if that is offered. `on_mail` is called, and awaited, before the 250 of a mail: if it raises, the
        client gets 451 and the mail is not recorded. Without `keep_raw` only the header section of each mail is kept.
        With `drops_pipelined` it discards commands that arrive together with an earlier one, although it offers
        PIPELINING.
        """
        super().__init__(host, port)
        self._offer = Offer(
            clock=clock or SystemClock(),
            hostname=hostname,
            limits=limits or Limits(),
            extensions=list(extensions),
            starttls=tls if tls_mode == "starttls" else None,
            implicit_tls=tls if tls_mode == "implicit" else None,
            auth=auth,
            auth_mechanisms=tuple(auth_mechanisms),
            is_auth_required=is_auth_required,
            on_mail=on_mail,
            keep_raw=keep_raw,
            drops_pipelined=drops_pipelined,
        )
        self._record = MailRecord(self._offer.limits.mails_kept, self._offer.limits.connections_kept)
        self._sessions: dict[asyncio.Task[None], ServerWire] = {}

    # -- starting and stopping -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        await self._listen(lambda: ServerWire(self._offer.limits.message_bytes, self._open))

    async def stop(self) -> None:
        """Stop listening, send 421 to connected clients and close. Received mails stay; `start` may follow."""
        if self._listener is None:
            return
        self._kept_port.leave(self._listener)
        for wire in self._sessions.values():
            wire.stop()
        if self._sessions:
            _, late = await asyncio.wait(list(self._sessions), timeout=_GRACE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        # Newer Python versions wait here until every connection is flushed, which a client that does not read prevents.
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await self._listener.wait_closed()
        self._listener = None

    # -- behaving and misbehaving --------------------------------------------------------------------------------------

    def on(
        self,
        verb: SmtpVerb,
        *,
        address: str | Callable[[str], bool] | None = None,
        when: Callable[[MailEvent], bool] | None = None,
    ) -> MailRule:
        """Add a rule for this verb, this address (at MAIL the sender, else any recipient) and this condition."""
        rule = MailRule(verb, address, when)
        self._rules.add(rule)
        return rule

    @property
    def extensions(self) -> list[str]:
        """The extensions of the next EHLO reply. Changing them changes the reply, not the server's abilities."""
        return self._offer.extensions

    # -- record --------------------------------------------------------------------------------------------------------

    @property
    def mails(self) -> Sequence[ReceivedMail]:
        """The accepted mails, oldest first; only the newest `Limits.mails_kept`."""
        return self._record.mails

    @property
    def mail_count(self) -> int:
        """The total number of accepted mails."""
        return self._record.mail_count

    @property
    def connections(self) -> Sequence[ConnectionRecord]:
        """All connections so far, open or closed, oldest first."""
        return self._record.connections

    @property
    def open_connections(self) -> Sequence[ConnectionRecord]:
        return [connection for connection in self._record.connections if connection.is_open]

    @property
    def seen(self) -> Counter[str]:
        """The number of occurrences of each verb."""
        return self._record.seen

    async def received(self, count: int = 1, *, to: str | None = None, timeout_s: float = 30) -> list[ReceivedMail]:
        """Wait for `count` mails (with `to`, to this recipient) and return them. Raises TimeoutError."""
        if count > self._record.mails_max:
            raise ValueError(f"{count} mails can never be there: Limits.mails_kept is {self._record.mails_max}")

        def found() -> list[ReceivedMail]:
            return [mail for mail in self.mails if to is None or to in mail.recipients]

        def is_so() -> bool:
            return self.mail_count >= count and (to is None or len(found()) >= count)

        await self._record.until(is_so, timeout_s, f"{count} mails" + (f" to {to}" if to else ""))
        return found()

    async def saw(self, verb: SmtpVerb, count: int = 1, *, timeout_s: float = 30) -> None:
        """Wait until this verb was received `count` times, answered or not. Raises TimeoutError."""
        await self._record.until(lambda: self.seen[verb] >= count, timeout_s, f"{verb} x {count}")

    async def until(self, is_so: Callable[[], bool], *, timeout_s: float = 30, what: str = "it to be so") -> None:
        """Wait for a condition, checked on each verb, mail, connection and disconnection. Raises TimeoutError."""
        await self._record.until(is_so, timeout_s, what)

    async def idle(self, *, timeout_s: float = 30) -> None:
        """Wait until no connection is open. Raises TimeoutError."""
        await self._record.until(lambda: not self._sessions, timeout_s, "all connections to end")

    # -- connections ---------------------------------------------------------------------------------------------------

    def _open(self, wire: ServerWire) -> None:
        self._record.connection_count += 1
        connection = ConnectionRecord(
            number=self._record.connection_count,
            peer=wire.peer,
            wire=wire,
            transcript=deque(maxlen=self._offer.limits.transcript_lines),
        )
        if len(self._sessions) >= self._offer.limits.connections:
            connection.say(421, "4.7.0 Too many connections")
            connection.is_open = False
            wire.close()
            self._record.add_connection(connection)
            return
        if self._offer.implicit_tls is not None:
            wire.hold_input()
        session = SmtpServerSession(wire, connection, self._offer, self._rules, self._record)
        task = asyncio.get_running_loop().create_task(session.run(), name=f"mail connection {connection.number}")
        self._sessions[task] = wire
        task.add_done_callback(lambda task: self._close(task, connection))
        self._record.add_connection(connection)

    def _close(self, task: asyncio.Task[None], connection: ConnectionRecord) -> None:
        del self._sessions[task]
        if not task.cancelled() and (bug := task.exception()):
            self._bugs.append(bug)
        connection.is_open = False
        self._record.changed()


class MailServerThread(ServerThread[MailServer]):
    """A `MailServer` (with the same options) for tests without an event loop.

    with MailServerThread() as server:
        server.on("dot").close().times(1)
        ...
        mails = server.received(1000, timeout_s=60)
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(MailServer(**options))
