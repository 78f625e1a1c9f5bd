"""The mail transactions of one attempt over a conversation, with the phase of each reply.

Theory of operation. If the server offers PIPELINING (RFC 2920), MAIL, every RCPT and DATA are sent in one write; the
replies arrive in order and are read one by one, as if each command had waited for the one before. Otherwise each
command is sent separately. Either way no part of the message is sent before the reply to DATA and the gate check, so
until then the server has nothing to deliver and no result is *uncertain*.

While a message waits for its reply, the next attempt may already send MAIL, RCPT and DATA over the same connection
(the RFC allows it), which saves the most expensive round trip. Its replies follow the reply of the first message. If
that reply does not arrive, nothing was said about the second mail, which then takes another connection; likewise if the
first message is rejected and the server, still in that transaction, replies 503 to the second MAIL. If the second
attempt is cancelled, the connection stays open until the first message has its reply.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from aiosmtplib.errors import SMTPServerDisconnected

from fieldpost.central.adapters.email.classify import ReplyVerdict, SmtpPhase, SmtpReply, classify, is_over
from fieldpost.central.adapters.email.compose import stuffed
from fieldpost.central.adapters.email.conversation import CLOSED, AttemptDeadline, SmtpConversation
from fieldpost.central.adapters.email.server_memory import ServerTraits
from fieldpost.central.adapters.email.settings import EmailSettings

BLOCK_BYTES = 16 * 1024
BLOCK_TIMEOUT_S = 180.0
EARLY_TIMEOUT_S = 10.0
"""Timeout for the rest of a reply that began while the message was being written."""
REUSED_TIMEOUT_S = 30.0
"""Timeout of the first reply over a reused connection: it may be dead, and a new one is cheap."""

UNPROVEN_TIMEOUT_S = 30.0
"""Timeout of a pipelined command's reply while the server has not answered one yet: it may ignore them."""


class SmtpTransaction:
    """One attempt's use of a conversation."""

    def __init__(
        self,
        conversation: SmtpConversation,
        settings: EmailSettings,
        deadline: AttemptDeadline,
        hand_over: Callable[[SmtpConversation], bool],
        traits: ServerTraits,
        *,
        may_pipeline: bool,
    ) -> None:
        self.phase = SmtpPhase.MAIL
        self.is_handed_over = False
        """Another attempt uses the conversation now."""
        self.is_pipelined = may_pipeline and "pipelining" in conversation.extensions
        self._traits = traits
        self._conversation = conversation
        self._settings = settings
        self._deadline = deadline
        self._hand_over = hand_over
        self._behind = conversation.dot
        self._is_first = conversation.is_reused
        self._pending: deque[SmtpPhase] = deque()
        """Commands whose replies have not been read yet."""

    @property
    def is_over(self) -> bool:
        return self._conversation.is_over

    @property
    def is_reused(self) -> bool:
        return self._conversation.is_reused

    @property
    def has_timed_out(self) -> bool:
        return self._conversation.has_timed_out

    @property
    def extensions(self) -> dict[str, str]:
        return self._conversation.extensions

    @property
    def has_asked_more(self) -> bool:
        """Whether replies for further recipients are outstanding."""
        return bool(self._pending) and self._pending[0] is SmtpPhase.RCPT

    async def mail(self, sender: str, mailboxes: Sequence[str], *, size: int, is_utf8: bool) -> SmtpReply:
        """Send MAIL FROM, with PIPELINING all further commands; an unfinished transaction is reset first."""
        if (late := await self._drain()) is not None:
            return late
        line = f"MAIL FROM:<{sender}>"
        if "size" in self.extensions:
            line += f" SIZE={size}"
        if is_utf8:
            line += " SMTPUTF8"
        lines = [line.encode("ascii")]
        self._pending.append(SmtpPhase.MAIL)
        if self.is_pipelined:
            lines += [*map(_rcpt, mailboxes), b"DATA"]
            self._pending.extend([*([SmtpPhase.RCPT] * len(mailboxes)), SmtpPhase.DATA])
        if self._conversation.is_in_transaction:
            failure = await self._reset(lines if self.is_pipelined else [])
            if failure is not None:
                return failure
            lines = [] if self.is_pipelined else lines
        self._conversation.is_in_transaction = True
        if lines and not self._conversation.send(lines):
            return self._closed(SmtpPhase.MAIL)
        return await self._next(SmtpPhase.MAIL)

    async def rcpt(self, mailbox: str) -> SmtpReply:
        if not self._pending:
            if not self._conversation.send([_rcpt(mailbox)]):
                return self._closed(SmtpPhase.RCPT)
            self._pending.append(SmtpPhase.RCPT)
        return await self._next(SmtpPhase.RCPT)

    async def data(self, message: bytes, gate: Callable[[], None], *, is_last: bool) -> SmtpReply:
        """Send DATA and the message; the reply belongs to `phase`. The gate may raise before the dot is sent."""
        if not self._pending:
            if not self._conversation.send([b"DATA"]):
                return self._closed(SmtpPhase.DATA)
            self._pending.append(SmtpPhase.DATA)
        reply = await self._next(SmtpPhase.DATA)
        if classify(SmtpPhase.DATA, reply) is not ReplyVerdict.ACCEPTED:
            return reply
        content = stuffed(message)
        # Most messages are one block. For longer ones, wait until each block is sent, so that the gate is checked when
        # the dot is really sent, not when it is buffered.
        last = max(0, len(content) - 1) // BLOCK_BYTES * BLOCK_BYTES
        for start in range(0, last, BLOCK_BYTES):
            failure = await self._write_out(content[start : start + BLOCK_BYTES])
            if failure is not None:
                return failure
        timeout_s = self._deadline.at_most(self._settings.data_timeout_s)
        if timeout_s <= 0:
            return self._conversation.no_reply("the attempt's deadline passed before the message was sent")
        gate()
        try:
            self._conversation.wire.write(content[last:])
        except SMTPServerDisconnected:
            return await self._early_reply()
        # From here on the server may have the mail, with or without a reply.
        self.phase = SmtpPhase.DOT
        self._conversation.is_in_transaction = False
        self._conversation.note(f"> (the message, {len(message)} bytes, and a dot)")
        return await self._read_dot_reply(timeout_s, is_last)

    def abort(self) -> None:
        """Send nothing more, not even buffered data."""
        if self._behind is not None and not self._behind.done():
            # Another attempt's message still waits for its reply: closing now would make it uncertain.
            self._conversation.is_over = self._conversation.is_doomed = True
        else:
            self._conversation.hang_up()

    @property
    def is_settled(self) -> bool:
        """Whether all replies have been read."""
        return not self._pending

    async def leave(self) -> bool:
        """Read outstanding replies; returns whether the conversation is ready for another attempt."""
        return await self._drain() is None and not self.is_over

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _reset(self, more: Sequence[bytes]) -> SmtpReply | None:
        """Send RSET with these commands in the same write; returns the failure, if any."""
        if not self._conversation.send([b"RSET", *more]):
            return self._closed(SmtpPhase.MAIL)
        reply = await self._read_reply(SmtpPhase.MAIL)
        if reply.code == 250:
            return None
        return self._conversation.no_reply(f"the server rejected RSET: {reply.line}") if reply.is_answer else reply

    def _closed(self, phase: SmtpPhase) -> SmtpReply:
        self.phase = phase
        return self._conversation.no_reply(CLOSED)

    async def _read_dot_reply(self, timeout_s: float, is_last: bool) -> SmtpReply:
        conversation = self._conversation
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        began = self._deadline.clock.monotonic()
        conversation.dot = answered
        try:
            if is_last and self.is_pipelined:
                self.is_handed_over = self._hand_over(conversation)
            reply = await conversation.read_reply(SmtpPhase.DOT, timeout_s, self._deadline)
        finally:
            if conversation.dot is answered:
                conversation.dot = None
            answered.set_result(None)
        conversation.dot_s = self._deadline.clock.monotonic() - began
        if reply.code // 100 != 2:
            # Postfix keeps the transaction open after it rejected a message: reset it before the next MAIL.
            conversation.is_in_transaction = True
        if conversation.is_doomed:
            conversation.hang_up()
        return reply

    async def _next(self, phase: SmtpPhase) -> SmtpReply:
        """Read the next reply, which must belong to this phase."""
        expected = self._pending.popleft()
        assert expected is phase, f"the next reply belongs to {expected}, not to {phase}"
        return await self._read_reply(phase)

    async def _read_reply(self, phase: SmtpPhase) -> SmtpReply:
        self.phase = phase
        timeout_s = self._settings.command_timeout_s
        if self.is_pipelined and not self._traits.has_pipelined and phase is not SmtpPhase.MAIL:
            timeout_s = min(timeout_s, UNPROVEN_TIMEOUT_S)
        if self._is_first:
            self._is_first = False
            timeout_s = min(timeout_s, REUSED_TIMEOUT_S)
            if not await self._wait_behind(self._deadline.at_most(timeout_s)):
                return SmtpReply(0, CLOSED)
        return await self._conversation.read_reply(phase, timeout_s, self._deadline)

    async def _wait_behind(self, timeout_s: float) -> bool:
        """Wait for the reply of the message before ours; returns whether the connection is usable."""
        if self._behind is not None and not self._behind.done():
            await asyncio.wait([self._behind], timeout=timeout_s)
            if not self._behind.done():
                return False
        return not self._conversation.is_over

    async def _drain(self) -> SmtpReply | None:
        """Read outstanding replies; returns the one that ended the conversation, if any."""
        if self.is_over:
            self._pending.clear()
        while self._pending:
            phase = self._pending.popleft()
            reply = await self._read_reply(phase)
            if phase is SmtpPhase.DATA and reply.code == 354:
                # The server waits for a message without recipients. Only hanging up avoids sending one.
                return self._conversation.no_reply("the server accepted DATA although it accepted no recipient")
            if is_over(phase, reply):
                return reply
        return None

    async def _write_out(self, block: bytes) -> SmtpReply | None:
        timeout_s = self._deadline.at_most(BLOCK_TIMEOUT_S)
        try:
            async with asyncio.timeout(timeout_s):
                await self._conversation.wire.write_out(block)
        except TimeoutError:
            return self._conversation.no_reply(f"the server accepted no more data for {timeout_s:g} s")
        except (SMTPServerDisconnected, OSError):
            return await self._early_reply()
        return None if self._conversation.wire.is_quiet else await self._early_reply()

    async def _early_reply(self) -> SmtpReply:
        """The reply of a server that rejects a message before its end. The conversation is over: what was written of
        the message cannot be taken back, and the server may read the rest as commands."""
        reply = None
        if self._conversation.wire.has_input:
            reply = await self._conversation.read_reply(SmtpPhase.DATA, EARLY_TIMEOUT_S, self._deadline)
        if reply is None or reply.code // 100 not in (4, 5):
            return self._conversation.no_reply(CLOSED)
        self._conversation.is_over = True
        return reply


def _rcpt(mailbox: str) -> bytes:
    return f"RCPT TO:<{mailbox}>".encode()
