"""How the server misbehaves: rules that a test lays before its client talks to the server, or while it does.

    server.on("rcpt", address="flaky@plant.example").reply(451, "4.2.1 busy").times(2, per="address")
    server.on("rcpt").after(50, per="transaction").reply(452, "4.5.3 too many recipients")
    server.on("dot").keep_mail().close()          # it has the mail, and the client never learns
    server.on("ehlo").hang()

Theory of operation. Each verb that arrives becomes a `MailEvent`. The rules of that verb are checked in the order in
which they were added; the first one that matches and is not used up decides the `MailReaction`. Used-up rules are
skipped, so two rules in a row make a sequence: first 451, then 550. Without a rule the server behaves correctly. An
invalid command (bad syntax, wrong order) gets the server's own error and uses up no rule.

A positive answer given by a rule has the effect of the server's own (`reply(251)` at RCPT adds the recipient). After a
negative one, or none, the command did not happen; only `keep_mail` takes the mail in all the same.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Self

from fieldpost.testing.mail.script import BEHAVE, VERBS, MailEvent, MailReaction, ScriptedReply, SmtpVerb, Tap
from fieldpost.testing.misbehaving import Misbehaving

Per = Literal["address", "message", "transaction", "connection"]
"""What a rule counts apart: each address, each Message-ID, each MAIL, each connection."""

_VERBS_PER: dict[str | None, frozenset[str]] = {
    None: VERBS,
    "address": frozenset({"mail", "rcpt"}),
    "message": frozenset({"dot"}),
    "transaction": frozenset({"mail", "rcpt", "data", "dot"}),
    "connection": VERBS,
}
_VERBS_WITH_ADDRESS = frozenset({"mail", "rcpt", "data", "dot"})
_COUNTERS_MAX = 10_000


class MailRule(Misbehaving):
    """What to do at one verb. It does nothing until it is told what: by `reply`, `close`, `delay` or any other act."""

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
        self.verb: SmtpVerb = verb
        self.hits = 0
        """How often it has acted."""
        self._address = address.casefold() if isinstance(address, str) else address
        self._when = when
        self._act: MailReaction | None = None
        self._skips = _Turns(0)
        self._turns: _Turns | None = None
        self._is_withdrawn = False

    # -- the answer ----------------------------------------------------------------------------------------------------

    def reply(self, code: int, text: str = "") -> Self:
        """Answer with this code; a text of several lines makes a reply of several lines."""
        if not 200 <= code <= 599:
            raise ValueError(f"{code} is no reply code; raw() sends anything")
        return self._do(reply=ScriptedReply(code, text))

    def unavailable(self, text: str = "4.3.2 Service not available") -> Self:
        """Say 421 and close, as a server does that is shutting down or overloaded."""
        return self.reply(421, text).then_close()

    def raw(self, data: bytes) -> Self:
        """Send these bytes in place of a reply; the command has no effect."""
        return self._do(raw=data)

    def inject(self, data: bytes) -> Self:
        """Send these bytes in one go with the reply, right after it."""
        return self._do(injected=data)

    def accept(self) -> Self:
        """Behave: an exception that stands before a wider rule."""
        return self._do()

    def keep_mail(self) -> Self:
        """At `dot`: take the mail in whatever is answered, and before any wait or delay."""
        if self.verb != "dot":
            raise ValueError(f"only 'dot' brings a mail that could be kept, not {self.verb!r}")
        return self._do(keeps_mail=True)

    # -- the time ------------------------------------------------------------------------------------------------------

    def drip(self, pace: Tap | float) -> Self:
        """Let the answer out byte by byte: as the tap allows, or one byte in so many seconds of the server's clock."""
        return self._do(pace=pace)

    # -- how often -----------------------------------------------------------------------------------------------------

    def times(self, count: int, per: Per | None = None) -> Self:
        """Act only so many times, in all or for each address, message (its Message-ID), transaction or connection."""
        self._turns = _Turns(count, self._countable(per))
        return self

    def after(self, count: int, per: Per | None = None) -> Self:
        """Let the first so many through, in all or for each."""
        self._skips = _Turns(count, self._countable(per))
        return self

    def withdraw(self) -> None:
        """Act no more."""
        self._is_withdrawn = True

    def take(self, moment: MailEvent) -> MailReaction | None:
        """What to do now, if this rule has a word in it; its turn is then taken."""
        act = self._act
        if act is None or self._is_withdrawn or not self._matches(moment):
            return None
        if self._skips.take(moment) or not (self._turns is None or self._turns.take(moment)):
            return None
        self.hits += 1
        return act

    def _matches(self, moment: MailEvent) -> bool:
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

    def _do(self, **changes: Any) -> Self:
        self._act = replace(self._act or BEHAVE, **changes)
        return self


class Rules:
    """All rules of a server, by verb."""

    def __init__(self) -> None:
        self._rules: dict[str, list[MailRule]] = {}

    def lay(self, rule: MailRule) -> MailRule:
        self._rules.setdefault(rule.verb, []).append(rule)
        return rule

    def withdraw_all(self) -> None:
        for rules in self._rules.values():
            for rule in rules:
                rule.withdraw()
        self._rules = {}

    def has(self, verb: SmtpVerb) -> bool:
        return verb in self._rules

    def act(self, moment: MailEvent) -> MailReaction:
        for rule in self._rules.get(moment.verb, ()):
            act = rule.take(moment)
            if act is not None:
                return act
        return BEHAVE


class _Turns:
    """So many turns, in all or for each of something. Only the newest keys are remembered: a long run stays small."""

    def __init__(self, count: int, per: Per | None = None) -> None:
        self._count = count
        self._per = per
        self._taken: OrderedDict[object, int] = OrderedDict()

    def take(self, moment: MailEvent) -> bool:
        """Take a turn; False when none is left."""
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
                # Without a Message-ID nothing tells a second try from another mail: the bytes have to.
                return moment.message_id or moment.raw
            case "transaction":
                return moment.transaction
            case "connection":
                return moment.connection
