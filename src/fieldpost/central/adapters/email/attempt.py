"""One attempt: one mail to all targets of an envelope, with a result per target.

Theory of operation. Targets are sent in transactions of at most 100 recipients (the number every server must accept),
or fewer if the server is known to accept fewer; targets that need SMTPUTF8 get separate transactions. Within a
transaction each RCPT reply is classified on its own; the replies to DATA and the dot apply to the accepted recipients.
If the server accepts no more recipients, the rest follows in another transaction; recipients of the same write that it
accepted nevertheless get the mail with the others. If the server hangs up because of the recipients beyond its limit,
all follow over a new connection in smaller transactions. If the conversation ends early, targets without a result stay
due. If the server replies 503 (bad sequence), the targets without a result follow over a new connection, once.

Invariants: no target is marked delivered without a 2xx after the dot. Once one target is delivered, the outcome lists
all targets, so that the next attempt addresses only the others; so does a hold if a target was delivered or failed.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from fieldpost.central.adapters.email.address import check_address, needs_utf8
from fieldpost.central.adapters.email.classify import (
    OUT_OF_SEQUENCE,
    ReplyVerdict,
    SmtpPhase,
    SmtpReply,
    classify,
    rejects_sender,
)
from fieldpost.central.adapters.email.compose import compose
from fieldpost.central.adapters.email.server_memory import ServerTraits
from fieldpost.central.adapters.email.settings import EmailSettings
from fieldpost.central.adapters.email.smtp_transaction import SmtpTransaction
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.outcome import Held, Outcome, PermanentFailure, Uncertain, fold
from fieldpost.core.errors import InvalidInput
from fieldpost.core.notification import Target, TargetStatus

SMALLER_MAX = 3
"""How often an attempt opens a new connection because a server hung up after too many recipients."""


class Attempt:
    """The attempt to deliver one envelope."""

    def __init__(
        self, envelope: Envelope, settings: EmailSettings, traits: ServerTraits, message_id_domain: str
    ) -> None:
        self._message_id_domain = message_id_domain
        self._envelope = envelope
        self.traits = traits
        self._sender = settings.from_address
        self._targets: dict[str, Target] = {}
        """The results so far, by address."""
        self._mailboxes = self._check_targets()
        self._uncertain: str | None = None
        self._hold: Held | None = None
        self._reply: SmtpReply | None = None
        self._has_restarted = False
        self._smaller_count = 0
        self._recorded_count = 0
        self._has_stalled = False

    @property
    def refusal(self) -> Outcome | None:
        """The outcome without contacting the server, if there are no valid targets."""
        if self._mailboxes:
            return None
        if not self._targets:
            return PermanentFailure("the notification has no targets", phase="targets")
        return fold(tuple(self._targets.values()), phase="targets")

    async def run(self, transaction: SmtpTransaction) -> Outcome | None:
        """Send the mail to all targets without a result. Returns None if the connection is of no use: reused and dead,
        or out of step; run the attempt again over a new one. Raises only what the envelope's callbacks raise."""
        message = self._message
        if 0 < (largest := _size_max(transaction.extensions)) < len(message):
            error = f"the mail has {len(message)} bytes; the server accepts at most {largest}"
            return PermanentFailure(error, phase=SmtpPhase.EHLO.value)
        batches = deque(self._batches("smtputf8" in transaction.extensions))
        is_first = True
        while batches and (is_first or not transaction.is_over) and self._hold is None:
            rest = await self._transact(
                transaction, batches.popleft(), message, is_first=is_first, has_more=bool(batches)
            )
            if rest is None:
                return None
            batches.extendleft(reversed([*self._chunks(rest)]))
            is_first = False
            if batches and not transaction.is_over:
                await self._record_reached()
        return self._outcome(transaction.phase)

    def held(self, hold: Held) -> Outcome:
        """The outcome if no connection can be had, which may happen after part of the targets have a result."""
        self._hold = self._hold or hold
        return self._outcome(SmtpPhase.CONNECT)

    async def _record_reached(self) -> None:
        """Store the targets that the last transaction reached, since another one follows."""
        reached = [target for target in self._targets.values() if target.status is TargetStatus.DELIVERED]
        if new := reached[self._recorded_count :]:
            await self._envelope.record_reached(new)
            self._recorded_count = len(reached)

    @cached_property
    def _message(self) -> bytes:
        return compose(
            notification_id=self._envelope.notification_id,
            message_id_domain=self._message_id_domain,
            from_address=self._sender,
            subject=self._envelope.subject,
            body=self._envelope.body,
            dated=self._envelope.dated,
        )

    def _check_targets(self) -> dict[str, str]:
        """Stored address to mailbox as sent; they differ only for rows older than a rule. Invalid ones fail here."""
        mailboxes = {}
        for address in dict.fromkeys(self._envelope.targets):
            try:
                mailboxes[address] = check_address(address)
            except InvalidInput as error:
                self._targets[address] = Target(address, TargetStatus.FAILED, error.message)
        return mailboxes

    def _batches(self, offers_utf8: bool) -> Iterable[Sequence[str]]:
        left = [(address, mailbox) for address, mailbox in self._mailboxes.items() if address not in self._targets]
        plain = [address for address, mailbox in left if not needs_utf8(mailbox)]
        other = [address for address, mailbox in left if needs_utf8(mailbox)]
        if other and not offers_utf8:
            self._put(other, TargetStatus.FAILED, "the mail server does not offer SMTPUTF8, which this address needs")
            other = []
        for group in (plain, other):
            yield from self._chunks(group)

    def _chunks(self, addresses: Sequence[str]) -> Iterable[Sequence[str]]:
        size = self.traits.recipients_max
        return (addresses[start : start + size] for start in range(0, len(addresses), size))

    async def _transact(
        self, transaction: SmtpTransaction, batch: Sequence[str], message: bytes, *, is_first: bool, has_more: bool
    ) -> Sequence[str] | None:
        """Run one transaction; returns the addresses left for another transaction, or None (see `run`)."""
        mailboxes = [self._mailboxes[address] for address in batch]
        is_utf8 = any(map(needs_utf8, mailboxes))
        reply = await transaction.mail(self._sender, mailboxes, size=len(message), is_utf8=is_utf8)
        verdict = classify(SmtpPhase.MAIL, reply)
        if verdict is not ReplyVerdict.ACCEPTED:
            if is_first and transaction.is_reused and (reply.code == 421 or not reply.is_answer):
                return None
            if self._restarts(reply):
                return None
            self._settle(batch, SmtpPhase.MAIL, verdict, reply)
            return ()
        accepted: list[str] = []
        rest: list[str] = []
        refusals: list[SmtpReply] = []
        taken_first = len(batch)  # recipients accepted before the first one too many
        for index, address in enumerate(batch):
            if rest and not transaction.has_asked_more:
                rest.extend(batch[index:])
                break
            reply = await transaction.rcpt(mailboxes[index])
            if self._restarts(reply) or self._stalls(transaction, reply):
                return None
            verdict = classify(SmtpPhase.RCPT, reply)
            if verdict is ReplyVerdict.ACCEPTED:
                accepted.append(address)
            elif transaction.is_over:
                if self._shrinks(len(accepted), reply, is_certain=bool(rest) or verdict is ReplyVerdict.SPLIT):
                    return None
                self._settle([*accepted, *rest, *batch[index:]], SmtpPhase.RCPT, ReplyVerdict.TRANSIENT, reply)
                return ()
            elif verdict is ReplyVerdict.SPLIT and accepted:
                taken_first = min(taken_first, len(accepted))
                rest.append(address)
            else:
                refusals.append(reply)
                self._settle([address], SmtpPhase.RCPT, verdict, reply)
        if len(refusals) == len(batch) and rejects_sender(refusals, self._sender):
            self._settle(batch, SmtpPhase.RCPT, ReplyVerdict.HOLD, refusals[0])
        if rest and taken_first == len(accepted):
            self.traits.accepts_at_most(len(accepted))
        if accepted:
            reply = await transaction.data(message, self._envelope.gate, is_last=not rest and not has_more)
            if transaction.phase is SmtpPhase.DATA and (self._restarts(reply) or self._stalls(transaction, reply)):
                return None
            self._settle(accepted, transaction.phase, classify(transaction.phase, reply), reply)
        return rest

    def _restarts(self, reply: SmtpReply) -> bool:
        """Whether to continue over a new connection, once per attempt: 503 means that the server's idea of the
        transaction differs from ours, which says nothing about the mail."""
        if reply.code != OUT_OF_SEQUENCE or self._has_restarted:
            return False
        self._has_restarted = True
        return True

    def _shrinks(self, accepted_count: int, reply: SmtpReply, *, is_certain: bool) -> bool:
        """Learn from a server that ended the conversation between recipients; returns whether to continue over a new
        connection with smaller transactions. A 421 that does not mention recipients may have another reason, so only
        the next attempt sends fewer."""
        if not accepted_count or (reply.code != 421 and not is_certain):
            return False
        self.traits.accepts_at_most(accepted_count)
        self._smaller_count += is_certain
        return is_certain and self._smaller_count <= SMALLER_MAX

    def _stalls(self, transaction: SmtpTransaction, reply: SmtpReply) -> bool:
        """Whether a server that offers PIPELINING seems to ignore pipelined commands: continue over a new connection
        with one command at a time. If it answers there, it is remembered."""
        if reply.is_answer:
            self.traits.has_pipelined |= transaction.is_pipelined
            self.traits.ignores_pipelining |= self._has_stalled
            return False
        self._has_stalled = transaction.is_pipelined and transaction.has_timed_out and not self.traits.has_pipelined
        return self._has_stalled

    @property
    def may_pipeline(self) -> bool:
        return not (self._has_stalled or self.traits.ignores_pipelining)

    def _settle(self, addresses: Sequence[str], phase: SmtpPhase, verdict: ReplyVerdict, reply: SmtpReply) -> None:
        """Record the result of these addresses."""
        self._reply = reply
        match verdict:
            case ReplyVerdict.ACCEPTED:
                self._put(addresses, TargetStatus.DELIVERED, None)
            case ReplyVerdict.PERMANENT:
                self._put(addresses, TargetStatus.FAILED, reply.line)
            case ReplyVerdict.TRANSIENT | ReplyVerdict.SPLIT:
                self._put(addresses, TargetStatus.DUE, reply.line)
            case ReplyVerdict.HOLD:
                self._hold = self._hold or Held(f"mail server at {phase}: {reply.line}", reply.line, phase.value)
                self._put(addresses, TargetStatus.DUE, reply.line)
            case ReplyVerdict.UNCERTAIN:
                self._uncertain = reply.line
                self._put(addresses, TargetStatus.DUE, reply.line)

    def _put(self, addresses: Iterable[str], status: TargetStatus, error: str | None) -> None:
        for address in addresses:
            self._targets[address] = Target(address, status, error)

    def _outcome(self, phase: SmtpPhase) -> Outcome:
        reply = self._reply.line if self._reply is not None else None
        untried = f"not tried: {reply}" if reply else None
        targets = tuple(
            self._targets.get(address) or Target(address, TargetStatus.DUE, untried)
            for address in dict.fromkeys(self._envelope.targets)
        )
        if self._uncertain is not None:
            error = f"the message was sent, but {self._uncertain}; it may have been delivered"
            return Uncertain(error, targets, None, reply, phase.value)
        if self._hold is not None:
            is_mixed = any(target.status is not TargetStatus.DUE for target in targets)
            return replace(self._hold, targets=targets) if is_mixed else self._hold
        return fold(targets, reply, phase.value)


def _size_max(extensions: Mapping[str, str]) -> int:
    """The largest message that the server accepts (RFC 1870); 0 if it does not state a limit."""
    parameters = extensions.get("size", "").split()
    return int(parameters[0]) if parameters and parameters[0].isascii() and parameters[0].isdigit() else 0
