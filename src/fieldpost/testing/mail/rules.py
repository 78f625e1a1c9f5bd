"""Rules by which a test makes the server misbehave.

    server.on("rcpt", address="flaky@plant.example").reply(451, "4.2.1 busy").times(2, per="address")
    server.on("rcpt").after(50, per="transaction").reply(452, "4.5.3 too many recipients")
    server.on("dot").keep_mail().close()          # the server has the mail, but the client gets no reply
    server.on("ehlo").hang()

Theory of operation. Each verb that arrives becomes a `MailEvent`. The rules of that verb are checked in the order in
which they were added; the first one that matches and is not used up decides the `MailReaction`. Used-up rules are
skipped, so two rules in a row make a sequence: first 451, then 550. Without a rule the server behaves correctly. An
invalid command (bad syntax, wrong order) gets the server's own error and uses up no rule.

A positive reply of a rule has the same effect as the server's own (`reply(251)` at RCPT adds the recipient). After a
negative or missing reply the command has no effect; only `keep_mail` stores the mail in any case.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Literal, Self

from fieldpost.testing.mail.script import BEHAVE, VERBS, MailEvent, MailReaction, ScriptedReply, SmtpVerb, Tap
from fieldpost.testing.misbehaving import Misbehaving, Rules

Per = Literal["address", "message", "transaction", "connection"]
"""The scope of a rule's counter: per address, Message-ID, MAIL or connection."""

_VERBS_PER: dict[str | None, frozenset[str]] = {
    None: VERBS,
    "address": frozenset({"mail", "rcpt"}),
    "message": frozenset({"dot"}),
    "transaction": frozenset({"mail", "rcpt", "data", "dot"}),
    "connection": VERBS,
}
_VERBS_WITH_ADDRESS = frozenset({"mail", "rcpt", "data", "dot"})
_COUNTERS_MAX = 10_000


class MailRule(Misbehaving[MailEvent, MailReaction]):
    """A rule for one verb. It has no effect until a method such as `reply`, `close` or `delay` is called."""

    def __init__(
        self,
        verb: SmtpVerb,
        address: str | Callable[[str], bool] | None = None,
        when: Callable[[MailEvent], bool] | None = None,
    ) -> None:
        if verb not in VERBS:
            raise ValueError(f"no verb {verb!r}; there are {', '.join(sorted(VERBS))}")
        if address is not None and verb not in _VERBS_WITH_ADDRESS:
            raise ValueError(f"{verb!r} has no address; one of {', '.join(sorted(_VERBS_WITH_ADDRESS))} has")
        super().__init__(BEHAVE)
        self.verb: SmtpVerb = verb
        self._address = address.casefold() if isinstance(address, str) else address
        self._when = when
        self._skips = _Quota(0)
        self._uses: _Quota | None = None

    # -- the answer ----------------------------------------------------------------------------------------------------

    def reply(self, code: int, text: str = "") -> Self:
        """Reply with this code; a text with several lines makes a multi-line reply."""
        if not 200 <= code <= 599:
            raise ValueError(f"code must be between 200 and 599, got {code}; raw() sends anything")
        return self._do(reply=ScriptedReply(code, text))

    def unavailable(self, text: str = "4.3.2 Service not available") -> Self:
        """Reply 421 and close, like a server that is shutting down or overloaded."""
        return self.reply(421, text).then_close()

    def inject(self, data: bytes) -> Self:
        """Send these bytes right after the reply, in the same write."""
        return self._do(injected=data)

    def accept(self) -> Self:
        """Behave correctly: an exception before a wider rule."""
        return self._do()

    def keep_mail(self) -> Self:
        """At `dot`: store the mail regardless of the reply, before any wait or delay."""
        if self.verb != "dot":
            raise ValueError(f"keep_mail() needs the verb 'dot', not {self.verb!r}")
        return self._do(keeps_mail=True)

    def keep_transaction(self) -> Self:
        """At `dot`: leave the transaction open, as Postfix does when it rejects a message; MAIL then gets 503."""
        if self.verb != "dot":
            raise ValueError(f"keep_transaction() needs the verb 'dot', not {self.verb!r}")
        return self._do(keeps_transaction=True)

    # -- the time ------------------------------------------------------------------------------------------------------

    def drip(self, pace: Tap | float) -> Self:
        """Send the reply byte by byte: as the tap allows, or one per this many seconds of the server's clock."""
        return self._do(pace=pace)

    # -- how often -----------------------------------------------------------------------------------------------------

    def times(self, count: int, per: Per | None = None) -> Self:
        """Apply the rule at most `count` times, in total or per address, Message-ID, transaction or connection."""
        self._uses = _Quota(count, self._countable(per))
        return self

    def after(self, count: int, per: Per | None = None) -> Self:
        """Skip the first `count` events, in total or per address, Message-ID, transaction or connection."""
        self._skips = _Quota(count, self._countable(per))
        return self

    def _applies(self, event: MailEvent) -> bool:
        if not self._matches(event) or self._skips.take(event):
            return False
        return self._uses is None or self._uses.take(event)

    def _matches(self, moment: MailEvent) -> bool:
        if moment.verb != self.verb:
            return False
        wanted = self._address
        if isinstance(wanted, str):
            if not any(address.casefold() == wanted for address in moment.addresses):
                return False
        elif wanted is not None and not any(map(wanted, moment.addresses)):
            return False
        return self._when is None or self._when(moment)

    def _countable(self, per: Per | None) -> Per | None:
        if self.verb not in _VERBS_PER[per]:
            raise ValueError(f"{self.verb!r} cannot be counted per {per}; {', '.join(sorted(_VERBS_PER[per]))} can")
        return per


MailRules = Rules[MailEvent, MailReaction]


class _Quota:
    """A number of uses, in total or per key. Only the newest keys are remembered, to bound memory."""

    def __init__(self, count: int, per: Per | None = None) -> None:
        self._count = count
        self._per = per
        self._taken: OrderedDict[object, int] = OrderedDict()

    def take(self, moment: MailEvent) -> bool:
        """Use one; returns False if none is left."""
        if not self._count:
            return False
        key = self._key(moment)
        taken = self._taken.pop(key, 0)
        self._taken[key] = taken + 1
        if len(self._taken) > _COUNTERS_MAX:
            self._taken.popitem(last=False)
        return taken < self._count

    def _key(self, moment: MailEvent) -> object:
        match self._per:
            case None:
                return None
            case "address":
                return (moment.address or "").casefold()
            case "message":
                # Without a Message-ID, compare the bytes to recognise a second attempt.
                return moment.message_id or moment.raw
            case "transaction":
                return moment.transaction
            case "connection":
                return moment.connection
