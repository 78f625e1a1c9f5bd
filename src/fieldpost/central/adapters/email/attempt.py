"""One attempt: one mail to all targets of an envelope over one conversation, and a result for each target.

Theory of operation. Targets go in transactions of at most a hundred (what every server must take), those that need
SMTPUTF8 in transactions of their own. Within a transaction each RCPT is judged by itself; DATA and the dot are judged
for those that were accepted. A server that wants no more recipients gets the rest in a further transaction. When the
conversation ends early, whoever has no result yet is still due.

What must hold: nobody is marked delivered without a 2xx after the dot; and once somebody has it, the outcome names
every target, so that the next attempt goes to the others alone. A hold names nobody, hence it is returned only while
nobody has the mail.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from fieldpost.central.adapters.email.address import check_address, needs_utf8
from fieldpost.central.adapters.email.classify import Phase, Reply, Verdict, classify
from fieldpost.central.adapters.email.compose import compose
from fieldpost.central.adapters.email.conversation import Conversation
from fieldpost.central.adapters.email.settings import Settings
from fieldpost.core.adapter import Envelope
from fieldpost.core.errors import InvalidInput
from fieldpost.core.notification import Target, TargetStatus
from fieldpost.core.outcome import Held, Outcome, PermanentFailure, Uncertain, fold

RECIPIENTS_MAX = 100


class Attempt:
    """The attempt to deliver one envelope."""

    def __init__(self, envelope: Envelope, settings: Settings) -> None:
        self._envelope = envelope
        self._sender = settings.from_address
        self._targets: dict[str, Target] = {}
        """The results so far, by address."""
        self._mailboxes = self._check_targets()
        self._uncertain: str | None = None
        self._hold: str | None = None
        self._reply: Reply | None = None

    async def run(self, conversation: Conversation) -> Outcome:
        """Greet the server and give it the mail. Raises only what the envelope's gate raises."""
        if not self._mailboxes:
            return self._refused_all()
        reply = await conversation.greet()
        if classify(conversation.phase, reply) is not Verdict.ACCEPTED:
            return Held(f"mail server at {conversation.phase}: {reply.line}", reply.line, conversation.phase.value)
        message = compose(
            notification_id=self._envelope.notification_id,
            from_address=self._sender,
            subject=self._envelope.subject,
            body=self._envelope.body,
            dated=self._envelope.dated,
        )
        if 0 < (largest := _size_max(conversation.extensions)) < len(message):
            error = f"the mail has {len(message)} bytes, and the server takes at most {largest}"
            return PermanentFailure(error, phase=Phase.EHLO.value)
        batches = deque(self._batches("smtputf8" in conversation.extensions))
        while batches and not conversation.is_over and self._hold is None:
            rest = await self._transact(conversation, batches.popleft(), message)
            if rest:
                batches.appendleft(rest)
        return self._outcome(conversation.phase)

    def _check_targets(self) -> dict[str, str]:
        """Address as kept to mailbox as sent; they differ only for rows from before a rule. Bad ones fail here."""
        mailboxes = {}
        for address in dict.fromkeys(self._envelope.targets):
            try:
                mailboxes[address] = check_address(address)
            except InvalidInput as error:
                self._targets[address] = Target(address, TargetStatus.FAILED, error.message)
        return mailboxes

    def _batches(self, offers_utf8: bool) -> Iterable[Sequence[str]]:
        plain = [address for address, mailbox in self._mailboxes.items() if not needs_utf8(mailbox)]
        other = [address for address, mailbox in self._mailboxes.items() if needs_utf8(mailbox)]
        if other and not offers_utf8:
            self._put(other, TargetStatus.FAILED, "the mail server does not offer SMTPUTF8, which this address needs")
            other = []
        for group in (plain, other):
            for start in range(0, len(group), RECIPIENTS_MAX):
                yield group[start : start + RECIPIENTS_MAX]

    async def _transact(self, conversation: Conversation, batch: Sequence[str], message: bytes) -> Sequence[str]:
        """One transaction; gives back those who have to go in a further one."""
        is_utf8 = any(needs_utf8(self._mailboxes[address]) for address in batch)
        reply = await conversation.mail(self._sender, size=len(message), is_utf8=is_utf8)
        verdict = classify(Phase.MAIL, reply)
        if verdict is not Verdict.ACCEPTED:
            self._settle(batch, verdict, reply)
            return ()
        accepted: list[str] = []
        rest: Sequence[str] = ()
        for index, address in enumerate(batch):
            reply = await conversation.rcpt(self._mailboxes[address])
            verdict = classify(Phase.RCPT, reply)
            if verdict is Verdict.ACCEPTED:
                accepted.append(address)
            elif verdict is Verdict.SPLIT and accepted:
                rest = batch[index:]
                break
            elif conversation.is_over:
                self._settle([*accepted, *batch[index:]], Verdict.TRANSIENT, reply)
                return ()
            else:
                self._settle([address], verdict, reply)
        if accepted:
            reply = await conversation.data(message, self._envelope.gate)
            self._settle(accepted, classify(conversation.phase, reply), reply)
        return rest

    def _settle(self, addresses: Sequence[str], verdict: Verdict, reply: Reply) -> None:
        """What this verdict means for these."""
        self._reply = reply
        match verdict:
            case Verdict.ACCEPTED:
                self._put(addresses, TargetStatus.DELIVERED, None)
            case Verdict.PERMANENT:
                self._put(addresses, TargetStatus.FAILED, reply.line)
            case Verdict.TRANSIENT | Verdict.SPLIT:
                self._put(addresses, TargetStatus.DUE, reply.line)
            case Verdict.HOLD:
                self._hold = reply.line
                self._put(addresses, TargetStatus.DUE, reply.line)
            case Verdict.UNCERTAIN:
                self._uncertain = reply.line
                self._put(addresses, TargetStatus.DUE, reply.line)

    def _put(self, addresses: Iterable[str], status: TargetStatus, error: str | None) -> None:
        for address in addresses:
            self._targets[address] = Target(address, status, error)

    def _outcome(self, phase: Phase) -> Outcome:
        reply = self._reply.line if self._reply is not None else None
        untried = f"not tried: {reply}" if reply else None
        targets = tuple(
            self._targets.get(address) or Target(address, TargetStatus.DUE, untried)
            for address in dict.fromkeys(self._envelope.targets)
        )
        if self._uncertain is not None:
            error = f"the message was sent, but {self._uncertain}; it may have arrived"
            return Uncertain(error, targets, None, reply, phase.value)
        if self._hold is not None and all(target.status is not TargetStatus.DELIVERED for target in targets):
            return Held(f"mail server at {phase}: {self._hold}", reply, phase.value)
        return fold(targets, reply, phase.value)

    def _refused_all(self) -> Outcome:
        if not self._targets:
            return PermanentFailure("there is nobody to send to", phase="targets")
        return fold(tuple(self._targets.values()), phase="targets")


def _size_max(extensions: Mapping[str, str]) -> int:
    """The largest message that the server takes (RFC 1870); 0 when it does not say."""
    parameters = extensions.get("size", "").split()
    return int(parameters[0]) if parameters and parameters[0].isascii() and parameters[0].isdigit() else 0
