"""Replies of the server: applies the rules, waits, sends the reply and possibly closes the connection."""

from dataclasses import dataclass

from fieldpost.clock import Clock
from fieldpost.testing.mail.record import ConnectionRecord
from fieldpost.testing.mail.rules import MailRules
from fieldpost.testing.mail.script import BEHAVE, MailEvent, MailReaction, ScriptedReply
from fieldpost.testing.mail.wire import ServerWire
from fieldpost.testing.misbehaving import Ending


class Ended(Exception):
    """The conversation has ended."""


class Voice:
    """The sending half of a session."""

    def __init__(self, wire: ServerWire, connection: ConnectionRecord, rules: MailRules, clock: Clock) -> None:
        self._wire = wire
        self._connection = connection
        self._rules = rules
        self._clock = clock

    async def settle(self, moment: MailEvent, own: ScriptedReply) -> bool:
        """Reply to a command by its rule or with our own reply; returns whether it has its effect. Raises Ended."""
        act = self.ask(moment)
        if act is BEHAVE:
            self.tell(own)
            return own.is_positive
        await self.hold(act)
        await self.speak(act, own)
        return act.lets_through(own)

    def ask(self, moment: MailEvent) -> MailReaction:
        return self._rules.reaction(moment) or BEHAVE

    async def hold(self, act: MailReaction) -> None:
        """Wait as long as the reaction requires."""
        if act.event is not None:
            await self._wire.while_open(act.event)
        if act.delay_s:
            await self._wire.while_open(_Nap(self._clock, act.delay_s))

    async def speak(self, act: MailReaction, own: ScriptedReply) -> None:
        """Send the reply at its pace. Raises Ended if the reaction ends the conversation."""
        answer = act.answer(own)
        if answer:
            self._connection.note("server", answer.decode("utf-8", "replace").rstrip())
        if act.pace is None:
            self._wire.say(answer)
        else:
            pace = _Nap(self._clock, act.pace) if isinstance(act.pace, int | float) else act.pace
            await self._wire.drip(answer, pace)
        match act.ending:
            case Ending.STAY:
                return
            case Ending.CLOSE:
                self._wire.close()
            case Ending.RESET:
                self._wire.reset()
            case Ending.HANG:
                await self._wire.hang()
        raise Ended

    def tell(self, reply: ScriptedReply) -> None:
        """Send this reply regardless of rules."""
        self._connection.note("server", f"{reply.code} {reply.text}")
        self._wire.say(bytes(reply))


@dataclass(frozen=True, slots=True)
class _Nap:
    clock: Clock
    seconds: float

    async def wait(self) -> None:
        await self.clock.sleep(self.seconds)
