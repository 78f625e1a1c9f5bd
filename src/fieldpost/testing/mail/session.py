"""One SMTP session: the behaviour of a correct server for each verb, unless a rule overrides it."""

import inspect
import re
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from fieldpost.testing.mail.auth import authenticate
from fieldpost.testing.mail.message import ReceivedMail, head_of
from fieldpost.testing.mail.offer import Offer
from fieldpost.testing.mail.record import ConnectionRecord, MailRecord
from fieldpost.testing.mail.rules import MailRules
from fieldpost.testing.mail.script import MailEvent, ScriptedReply, SmtpVerb
from fieldpost.testing.mail.voice import Ended, Voice
from fieldpost.testing.mail.wire import LineTooLong, MessageTooBig, ServerWire
from fieldpost.testing.misbehaving import PeerGone

_PATH = re.compile(r"(from|to): ?<([^<>]*)>(?: (.*))?", re.IGNORECASE)
_OUT_OF_ORDER = ScriptedReply(503, "5.5.1 Bad sequence of commands")
_NOT_OFFERED = ScriptedReply(502, "5.5.1 Not offered")
_TOO_BIG = ScriptedReply(552, "5.3.4 Message too big")
_NEEDS_SMTPUTF8 = ScriptedReply(553, "5.6.7 Address needs SMTPUTF8")


class SmtpServerSession:
    """Serves one client until either side ends the session."""

    def __init__(
        self, wire: ServerWire, connection: ConnectionRecord, offer: Offer, rules: MailRules, record: MailRecord
    ) -> None:
        self._wire = wire
        self._connection = connection
        self._offer = offer
        self._record = record
        self._voice = Voice(wire, connection, rules, offer.clock)
        self._is_refused = False
        self._is_greeted = False
        self._transaction: _Transaction | None = None
        self._verbs: dict[str, Callable[[str, str], Awaitable[None]]] = {
            "EHLO": self._ehlo,
            "HELO": self._helo,
            "STARTTLS": self._starttls,
            "AUTH": self._auth,
            "MAIL": self._mail,
            "RCPT": self._rcpt,
            "DATA": self._data,
            "RSET": self._rset,
            "NOOP": self._noop,
            "VRFY": self._vrfy,
            "QUIT": self._quit,
        }

    async def run(self) -> None:
        """Run the session. Network failures end it; an exception is a bug in the server or the test."""
        try:
            if self._offer.implicit_tls is not None:
                await self._shake_hands(self._offer.implicit_tls, is_first=True)
            self._record.add_verb("connect")
            banner = ScriptedReply(220, f"{self._offer.hostname} ESMTP")
            self._is_refused = not await self._voice.settle(self._moment("connect"), banner)
            while True:
                await self._command()
        except PeerGone:
            if self._wire.is_stopping:
                self._voice.tell(ScriptedReply(421, "4.3.2 Service shutting down"))
        except Ended:
            pass
        finally:
            self._wire.close()

    async def _command(self) -> None:
        try:
            line = (await self._wire.line()).decode("utf-8", "surrogateescape")
        except LineTooLong:
            self._voice.tell(ScriptedReply(500, "5.5.2 Line too long"))
            return
        self._connection.note("client", line)
        if self._offer.drops_pipelined:
            self._wire.drop_input()
        verb, _, argument = line.partition(" ")
        verb = verb.upper()
        handle = self._verbs.get(verb)
        if handle is None:
            self._voice.tell(ScriptedReply(500, "5.5.2 Command not recognized"))
        elif self._is_refused and verb != "QUIT":
            self._voice.tell(_OUT_OF_ORDER)
        else:
            self._record.add_verb(verb.lower())
            await handle(argument.strip(), line)

    # -- the verbs -----------------------------------------------------------------------------------------------------

    async def _ehlo(self, argument: str, line: str) -> None:
        await self._greet("ehlo", argument, line, ScriptedReply(250, self._offer.ehlo_lines(self._connection.is_tls)))

    async def _helo(self, argument: str, line: str) -> None:
        await self._greet("helo", argument, line, ScriptedReply(250, self._offer.hostname))

    async def _greet(self, verb: SmtpVerb, argument: str, line: str, own: ScriptedReply) -> None:
        if not argument:
            self._voice.tell(ScriptedReply(501, "5.5.4 Say your name"))
        elif await self._voice.settle(self._moment(verb, line), own):
            self._is_greeted, self._transaction = True, None

    async def _starttls(self, _argument: str, line: str) -> None:
        context = None if self._connection.is_tls else self._offer.starttls
        own = _NOT_OFFERED if context is None else ScriptedReply(220, "2.0.0 Ready to start TLS")
        if await self._voice.settle(self._moment("starttls", line), own) and context is not None:
            await self._shake_hands(context)
            # Discard the state from before TLS (RFC 3207).
            self._is_greeted, self._transaction = False, None

    async def _auth(self, argument: str, line: str) -> None:
        if not self._is_greeted or self._transaction or self._connection.user is not None:
            self._voice.tell(_OUT_OF_ORDER)
            return
        act = self._voice.ask(self._moment("auth", line))
        await self._voice.hold(act)
        own, user = _NOT_OFFERED, None
        if act.has_answer:
            user = "" if act.lets_through(own) else None
        elif self._offer.auth is not None and self._offer.offers_auth(self._connection.is_tls):
            mechanism, _, initial = argument.partition(" ")
            if mechanism.upper() in self._offer.auth_mechanisms:
                own, user = await authenticate(mechanism.upper(), initial or None, self._challenge, self._offer.auth)
            else:
                own = ScriptedReply(504, "5.5.4 Mechanism not offered")
        self._connection.user = user
        await self._voice.speak(act, own)

    async def _mail(self, argument: str, line: str) -> None:
        path = _PATH.fullmatch(argument)
        if path is None or path[1].lower() != "from":
            self._voice.tell(ScriptedReply(501, "5.5.4 Syntax: MAIL FROM:<address>"))
            return
        address, parameters = path[2], (path[3] or "").upper().split()
        if not self._is_greeted or self._transaction:
            self._voice.tell(_OUT_OF_ORDER)
        elif self._offer.is_auth_required and self._connection.user is None:
            self._voice.tell(ScriptedReply(530, "5.7.0 Authentication required"))
        elif refusal := self._refusal(address, parameters):
            self._voice.tell(refusal)
        else:
            self._record.transaction_count += 1
            self._transaction = _Transaction(self._record.transaction_count, address, tuple(parameters))
            if not await self._voice.settle(self._moment("mail", line, address), ScriptedReply(250, "2.1.0 Sender OK")):
                self._transaction = None

    async def _rcpt(self, argument: str, line: str) -> None:
        path = _PATH.fullmatch(argument)
        if path is None or path[1].lower() != "to" or not path[2]:
            self._voice.tell(ScriptedReply(501, "5.5.4 Syntax: RCPT TO:<address>"))
        elif self._transaction is None:
            self._voice.tell(_OUT_OF_ORDER)
        elif path[3]:
            self._voice.tell(ScriptedReply(555, "5.5.4 Parameter not supported"))
        elif not path[2].isascii() and "SMTPUTF8" not in self._transaction.parameters:
            self._voice.tell(_NEEDS_SMTPUTF8)
        elif len(self._transaction.recipients) >= self._offer.limits.recipients:
            self._voice.tell(ScriptedReply(452, "4.5.3 Too many recipients"))
        elif await self._voice.settle(self._moment("rcpt", line, path[2]), ScriptedReply(250, "2.1.5 Recipient OK")):
            self._transaction.recipients.append(path[2])

    async def _data(self, _argument: str, line: str) -> None:
        if self._transaction is None:
            self._voice.tell(_OUT_OF_ORDER)
        elif not self._transaction.recipients:
            self._voice.tell(ScriptedReply(554, "5.5.1 No valid recipients"))
        elif await self._voice.settle(self._moment("data", line), ScriptedReply(354, "End with <CRLF>.<CRLF>")):
            stays_open = await self._message(self._transaction)
            self._transaction = self._transaction if stays_open else None

    async def _rset(self, _argument: str, line: str) -> None:
        if await self._voice.settle(self._moment("rset", line), ScriptedReply(250, "2.0.0 OK")):
            self._transaction = None

    async def _noop(self, _argument: str, line: str) -> None:
        await self._voice.settle(self._moment("noop", line), ScriptedReply(250, "2.0.0 OK"))

    async def _vrfy(self, _argument: str, line: str) -> None:
        await self._voice.settle(self._moment("vrfy", line), ScriptedReply(252, "2.5.2 Send some mail and see"))

    async def _quit(self, _argument: str, line: str) -> None:
        if await self._voice.settle(self._moment("quit", line), ScriptedReply(221, "2.0.0 Bye")):
            raise Ended

    # -- helpers -------------------------------------------------------------------------------------------------------

    async def _message(self, transaction: "_Transaction") -> bool:
        """Read the message up to its dot and reply; returns whether the transaction stays open."""
        raw = b""
        refusal = None
        try:
            raw = await self._wire.message()
        except MessageTooBig:
            refusal = _TOO_BIG
        self._connection.note("client", ".")
        self._record.add_verb("dot")
        if "8BITMIME" not in self._offer.extensions and not raw.isascii():
            refusal = ScriptedReply(554, "5.6.1 This server takes 7 bits only")
        if refusal:
            self._voice.tell(refusal)
            return False
        act = self._voice.ask(self._moment("dot", ".", raw=raw))
        own = ScriptedReply(250, "2.0.0 Accepted")
        if act.keeps_mail:
            own = await self._keep(transaction, raw)
            await self._voice.hold(act)
        else:
            await self._voice.hold(act)
            if act.lets_through(own):
                own = await self._keep(transaction, raw)
        await self._voice.speak(act, own)
        return act.keeps_transaction

    async def _keep(self, transaction: "_Transaction", raw: bytes) -> ScriptedReply:
        mail = ReceivedMail(
            number=self._record.next_mail_number(),
            connection=self._connection.number,
            sender=transaction.sender,
            recipients=tuple(transaction.recipients),
            received_at=self._offer.clock.now(),
            raw=raw if self._offer.keep_raw else head_of(raw),
            is_whole=self._offer.keep_raw,
            parameters=transaction.parameters,
        )
        if self._offer.on_mail is not None:
            try:
                done = self._offer.on_mail(mail)
                if inspect.isawaitable(done):
                    await done
            except Exception as error:
                # The hook failed: the client must keep its mail and gets the reason.
                reason = " ".join(f"{type(error).__name__}: {error}".split())
                return ScriptedReply(451, f"4.3.0 The mail could not be kept: {reason}")
        self._connection.mail_count += 1
        self._record.add_mail(mail)
        return ScriptedReply(250, f"2.0.0 Accepted as {mail.number}")

    def _refusal(self, address: str, parameters: list[str]) -> ScriptedReply | None:
        """The reply that rejects a MAIL with these parameters, if any."""
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            match name:
                case "SIZE" if "SIZE" in self._offer.extensions and value.isdecimal():
                    if int(value) > self._offer.limits.message_bytes:
                        return _TOO_BIG
                case "BODY" if "8BITMIME" in self._offer.extensions and value in {"7BIT", "8BITMIME"}:
                    pass
                case "SMTPUTF8" if "SMTPUTF8" in self._offer.extensions and not value:
                    pass
                case "AUTH" if self._offer.offers_auth(self._connection.is_tls):
                    pass
                case _:
                    return ScriptedReply(555, f"5.5.4 Parameter not supported: {name}")
        return None if address.isascii() or "SMTPUTF8" in parameters else _NEEDS_SMTPUTF8

    async def _challenge(self, challenge: str) -> str:
        self._voice.tell(ScriptedReply(334, challenge))
        line = (await self._wire.line()).decode("utf-8", "surrogateescape")
        self._connection.note("client", line)
        return line

    async def _shake_hands(self, context: ssl.SSLContext, *, is_first: bool = False) -> None:
        self._record.add_verb("tls")
        act = self._voice.ask(self._moment("tls"))
        await self._voice.hold(act)
        if act.has_answer:
            await self._voice.speak(act, ScriptedReply(220))
        try:
            await self._wire.start_tls(context, self._offer.limits.tls_handshake_s, is_first=is_first)
        except OSError as error:
            self._connection.tls_error = str(error) or type(error).__name__
            self._record.changed()
            raise Ended from None
        self._connection.is_tls = True

    def _moment(self, verb: SmtpVerb, line: str = "", address: str | None = None, raw: bytes = b"") -> MailEvent:
        number, transaction = self._connection.number, self._transaction
        if transaction is None:
            return MailEvent(verb, number, line=line)
        recipients = tuple(transaction.recipients)
        return MailEvent(verb, number, transaction.number, line, transaction.sender, recipients, address, raw)


@dataclass(slots=True)
class _Transaction:
    number: int
    sender: str
    parameters: tuple[str, ...]
    recipients: list[str] = field(default_factory=list)
