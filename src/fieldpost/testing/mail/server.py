"""The mail server for tests and for the demo: it behaves well unless it is told otherwise.

    async with MailServer() as server:
        server.on("rcpt", address="flaky@plant.example").reply(451, "4.2.1 busy").times(2)
        ...                                       # something sends to server.host, server.port
        mails = await server.received(1)
        assert mails[0].subject == "Pump 3 is hot"

What can be laid with `on` stands in `rules.py`; what is kept of a mail in `message.py`, of a connection in `record.py`.
"""

import asyncio
import ssl
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Literal, Self

from fieldpost.clock import Clock, SystemClock
from fieldpost.testing.kept_port import KeptPort
from fieldpost.testing.mail.message import ReceivedMail
from fieldpost.testing.mail.offer import EXTENSIONS, MECHANISMS, AuthCheck, Limits, MailHook, Offer
from fieldpost.testing.mail.record import ConnectionRecord, Record
from fieldpost.testing.mail.rules import MailRule, Rules
from fieldpost.testing.mail.script import MailEvent, SmtpVerb
from fieldpost.testing.mail.session import SmtpServerSession
from fieldpost.testing.mail.wire import ServerWire

_GRACE_S = 1.0


class MailServer:
    """An SMTP server on loopback; an async context manager, or `start` and `stop` as often as a test likes."""

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
        limits: Limits | None = None,
        clock: Clock | None = None,
    ) -> None:
        """
        `port` 0 takes a free one, which stays the server's over stop and start. `tls` holds the server's certificate,
        used by STARTTLS or from the first byte. `auth` judges credentials; AUTH is offered when it is given, and where
        there is STARTTLS only after it. `on_mail` is called, and awaited, before a mail's 250: if it raises, the client
        hears 451 and the mail does not count. Without `keep_raw` only the header section of each mail is kept.
        """
        self.host = host
        self.port = port
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
        )
        self._rules = Rules()
        self._record = Record(self._offer.limits.mails_kept, self._offer.limits.connections_kept)
        self._listener: asyncio.Server | None = None
        self._kept_port = KeptPort()
        self._sessions: dict[asyncio.Task[None], ServerWire] = {}
        self._bugs: list[BaseException] = []

    # -- starting and stopping -----------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        await self.stop()
        self._kept_port.give_up()
        # A predicate or a check of the test's that raised would otherwise look like a server that hung up.
        if self._bugs and error is None:
            raise self._bugs[0]

    async def start(self) -> None:
        """Listen. Raises OSError when the port is taken."""
        loop = asyncio.get_running_loop()
        kept = self._kept_port.come_back()
        place = {"host": self.host, "port": self.port} if kept is None else {"sock": kept}
        self._listener = await loop.create_server(
            lambda: ServerWire(self._offer.limits.message_bytes, self._open), **place
        )
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Listen no more, say 421 to whoever is connected, and hang up. What was received stays; `start` may follow."""
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
        # Newer Pythons wait here for the last byte of every connection, which a client that does not read never takes.
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
        """Lay a rule: at this verb, for this address (at MAIL the sender, else any recipient) and when this is so."""
        return self._rules.lay(MailRule(verb, address, when))

    def behave(self) -> None:
        """Withdraw all rules."""
        self._rules.withdraw_all()

    @property
    def extensions(self) -> list[str]:
        """What the next EHLO tells. One that is removed is stripped (STARTTLS still works), one added may be a lie."""
        return self._offer.extensions

    # -- what was seen -------------------------------------------------------------------------------------------------

    @property
    def mails(self) -> Sequence[ReceivedMail]:
        """The accepted mails, the oldest first; of very many the newest (`Limits.mails_kept`)."""
        return self._record.mails

    @property
    def mail_count(self) -> int:
        """How many mails were accepted in all."""
        return self._record.mail_count

    @property
    def connections(self) -> Sequence[ConnectionRecord]:
        """All connections so far, the oldest first, open or not."""
        return self._record.connections

    @property
    def open_connections(self) -> Sequence[ConnectionRecord]:
        return [connection for connection in self._record.connections if connection.is_open]

    @property
    def seen(self) -> Counter[str]:
        """How often each verb came."""
        return self._record.seen

    async def received(self, count: int = 1, *, to: str | None = None, timeout_s: float = 30) -> list[ReceivedMail]:
        """All mails (with `to`, those that went to this recipient), once there are so many. Raises TimeoutError."""
        if count > self._record.mails_max:
            raise ValueError(f"{count} mails can never be there: Limits.mails_kept is {self._record.mails_max}")

        def found() -> list[ReceivedMail]:
            return [mail for mail in self.mails if to is None or to in mail.recipients]

        def is_so() -> bool:
            return self.mail_count >= count and (to is None or len(found()) >= count)

        await self._record.until(is_so, timeout_s, f"{count} mails" + (f" to {to}" if to else ""))
        return found()

    async def saw(self, verb: SmtpVerb, count: int = 1, *, timeout_s: float = 30) -> None:
        """Return once this verb has come so many times, answered or not. Raises TimeoutError."""
        await self._record.until(lambda: self.seen[verb] >= count, timeout_s, f"{verb} x {count}")

    async def until(self, is_so: Callable[[], bool], *, timeout_s: float = 30, what: str = "it to be so") -> None:
        """Return once it is so; asked again with each verb, mail, connection and end of one. Raises TimeoutError."""
        await self._record.until(is_so, timeout_s, what)

    async def idle(self, *, timeout_s: float = 30) -> None:
        """Return once no connection is open. Raises TimeoutError."""
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
