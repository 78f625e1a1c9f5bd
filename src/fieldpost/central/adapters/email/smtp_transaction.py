"""What one attempt says over a conversation: its transactions, and the phase each answer belongs to.

Theory of operation. Where the server offers PIPELINING (RFC 2920), MAIL, every RCPT and DATA leave in one write; their
answers come in order and are read one by one, exactly as if each command had waited for the one before. Else each is
sent by itself. Either way nothing of the message goes out before DATA was answered and the gate was asked, so up to
then the server has nothing that it could deliver, and whatever happens is not *uncertain*.

While a message waits for its answer, the next attempt may already say MAIL, RCPT and DATA over the same connection (the
same RFC allows it), which saves the round trip that costs most. It is heard after the answer it waits behind. If that
does not come, nothing was said about its own mail and it takes another connection. If it is itself called off, the
connection lives on until the first one has its answer.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from aiosmtplib.errors import SMTPServerDisconnected

from fieldpost.central.adapters.email.classify import ReplyVerdict, SmtpPhase, SmtpReply, classify, is_over
from fieldpost.central.adapters.email.compose import stuffed
from fieldpost.central.adapters.email.conversation import CLOSED, SmtpConversation
from fieldpost.central.adapters.email.deadline import AttemptDeadline
from fieldpost.central.adapters.email.settings import EmailSettings

BLOCK_BYTES = 16 * 1024
BLOCK_TIMEOUT_S = 180.0
REUSED_TIMEOUT_S = 30.0
"""For the first answer over a connection that lay idle: it may be long dead, and a new one costs nothing."""


class SmtpTransaction:
    """One attempt's use of a conversation."""

    def __init__(
        self,
        conversation: SmtpConversation,
        settings: EmailSettings,
        deadline: AttemptDeadline,
        hand_over: Callable[[SmtpConversation], bool],
    ) -> None:
        self.phase = SmtpPhase.MAIL
        self.is_handed_over = False
        """Another attempt has the conversation now."""
        self._conversation = conversation
        self._settings = settings
        self._deadline = deadline
        self._hand_over = hand_over
        self._behind = conversation.dot
        self._is_first = conversation.is_reused
        self._unheard: deque[SmtpPhase] = deque()
        """The commands that were sent and whose answers were not read yet."""

    @property
    def is_over(self) -> bool:
        return self._conversation.is_over

    @property
    def is_reused(self) -> bool:
        return self._conversation.is_reused

    @property
    def extensions(self) -> dict[str, str]:
        return self._conversation.extensions

    @property
    def has_asked_more(self) -> bool:
        """Whether answers for further recipients are on their way, wanted or not."""
        return bool(self._unheard) and self._unheard[0] is SmtpPhase.RCPT

    async def mail(self, sender: str, mailboxes: Sequence[str], *, size: int, is_utf8: bool) -> SmtpReply:
        """MAIL FROM, and with PIPELINING all that follows; a transaction that came to nothing is reset first."""
        if (late := await self._read_off()) is not None:
            return late
        line = f"MAIL FROM:<{sender}>"
        if "size" in self.extensions:
            line += f" SIZE={size}"
        if is_utf8:
            line += " SMTPUTF8"
        lines = [line.encode("ascii")]
        self._unheard.append(SmtpPhase.MAIL)
        is_pipelined = "pipelining" in self.extensions
        if is_pipelined:
            lines += [*map(_rcpt, mailboxes), b"DATA"]
            self._unheard.extend([*([SmtpPhase.RCPT] * len(mailboxes)), SmtpPhase.DATA])
        if self._conversation.is_in_transaction:
            failure = await self._reset(lines if is_pipelined else [])
            if failure is not None:
                return failure
            lines = [] if is_pipelined else lines
        self._conversation.is_in_transaction = True
        if lines and not self._conversation.send(lines):
            return self._closed(SmtpPhase.MAIL)
        return await self._next(SmtpPhase.MAIL)

    async def rcpt(self, mailbox: str) -> SmtpReply:
        if not self._unheard:
            if not self._conversation.send([_rcpt(mailbox)]):
                return self._closed(SmtpPhase.RCPT)
            self._unheard.append(SmtpPhase.RCPT)
        return await self._next(SmtpPhase.RCPT)

    async def data(self, message: bytes, gate: Callable[[], None], *, is_last: bool) -> SmtpReply:
        """DATA and the message; the reply belongs to the phase that it ended in. The gate may raise before the dot."""
        if not self._unheard:
            if not self._conversation.send([b"DATA"]):
                return self._closed(SmtpPhase.DATA)
            self._unheard.append(SmtpPhase.DATA)
        reply = await self._next(SmtpPhase.DATA)
        if classify(SmtpPhase.DATA, reply) is not ReplyVerdict.ACCEPTED:
            return reply
        content = stuffed(message)
        # Most messages are one block. Of a longer one each block has to be on its way before the next, so that the
        # gate is asked when the dot really goes out, not when it joins a queue.
        last = max(0, len(content) - 1) // BLOCK_BYTES * BLOCK_BYTES
        for start in range(0, last, BLOCK_BYTES):
            failure = await self._write_out(content[start : start + BLOCK_BYTES])
            if failure is not None:
                return failure
        timeout_s = self._deadline.at_most(self._settings.data_timeout_s)
        if timeout_s <= 0:
            return self._conversation.unheard("the time of the attempt was used up before the message was sent")
        gate()
        try:
            self._conversation.wire.write(content[last:])
        except SMTPServerDisconnected:
            return self._conversation.unheard(CLOSED)
        # From here on the server may have the mail, whatever we hear or do not hear.
        self.phase = SmtpPhase.DOT
        self._conversation.is_in_transaction = False
        self._conversation.tell(f"> (the message, {len(message)} bytes, and a dot)")
        return await self._hear_dot(timeout_s, is_last)

    def abort(self) -> None:
        """Say nothing more; what was not sent yet stays unsent."""
        if self._behind is not None and not self._behind.done():
            # Somebody's message still waits for its answer here: to cut that off would leave it uncertain.
            self._conversation.is_over = self._conversation.is_doomed = True
        else:
            self._conversation.hang_up()

    @property
    def is_settled(self) -> bool:
        """Whether every answer was read."""
        return not self._unheard

    async def leave(self) -> bool:
        """Whether the conversation is fit for another attempt; answers that nobody wanted are read off."""
        return await self._read_off() is None and not self.is_over

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _reset(self, more: Sequence[bytes]) -> SmtpReply | None:
        """RSET, with these commands in the same write; what went wrong, if anything did."""
        if not self._conversation.send([b"RSET", *more]):
            return self._closed(SmtpPhase.MAIL)
        reply = await self._hear(SmtpPhase.MAIL)
        if reply.code == 250:
            return None
        return self._conversation.unheard(f"the server does not reset: {reply.line}") if reply.is_answer else reply

    def _closed(self, phase: SmtpPhase) -> SmtpReply:
        self.phase = phase
        return self._conversation.unheard(CLOSED)

    async def _hear_dot(self, timeout_s: float, is_last: bool) -> SmtpReply:
        conversation = self._conversation
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        began = self._deadline.clock.monotonic()
        conversation.dot = answered
        try:
            if is_last and "pipelining" in self.extensions:
                self.is_handed_over = self._hand_over(conversation)
            reply = await conversation.hear(SmtpPhase.DOT, timeout_s, self._deadline)
        finally:
            if conversation.dot is answered:
                conversation.dot = None
            answered.set_result(None)
        conversation.dot_s = self._deadline.clock.monotonic() - began
        if conversation.is_doomed:
            conversation.hang_up()
        return reply

    async def _next(self, phase: SmtpPhase) -> SmtpReply:
        """The next answer, which has to be one to this phase's command."""
        asked = self._unheard.popleft()
        assert asked is phase, f"the next answer is one to {asked}, not to {phase}"
        return await self._hear(phase)

    async def _hear(self, phase: SmtpPhase) -> SmtpReply:
        self.phase = phase
        timeout_s = self._settings.command_timeout_s
        if self._is_first:
            self._is_first = False
            timeout_s = min(timeout_s, REUSED_TIMEOUT_S)
            if not await self._wait_behind(self._deadline.at_most(timeout_s)):
                return SmtpReply(0, CLOSED)
        return await self._conversation.hear(phase, timeout_s, self._deadline)

    async def _wait_behind(self, timeout_s: float) -> bool:
        """Whether the connection is ours to hear now."""
        if self._behind is not None and not self._behind.done():
            await asyncio.wait([self._behind], timeout=timeout_s)
            if not self._behind.done():
                return False
        return not self._conversation.is_over

    async def _read_off(self) -> SmtpReply | None:
        """Answers to commands whose answers nobody needed; one that stops the conversation comes back."""
        if self.is_over:
            self._unheard.clear()
        while self._unheard:
            phase = self._unheard.popleft()
            reply = await self._hear(phase)
            if phase is SmtpPhase.DATA and reply.code == 354:
                # The server waits for a message to nobody. Hanging up is the one way not to send it any.
                return self._conversation.unheard("the server wanted the message although it took no recipient")
            if is_over(phase, reply):
                return reply
        return None

    async def _write_out(self, block: bytes) -> SmtpReply | None:
        timeout_s = self._deadline.at_most(BLOCK_TIMEOUT_S)
        try:
            async with asyncio.timeout(timeout_s):
                await self._conversation.wire.write_out(block)
        except TimeoutError:
            return self._conversation.unheard(f"the server took no more of the message for {timeout_s:g} s")
        except (SMTPServerDisconnected, OSError):
            return self._conversation.unheard(CLOSED)
        return None


def _rcpt(mailbox: str) -> bytes:
    return f"RCPT TO:<{mailbox}>".encode()
