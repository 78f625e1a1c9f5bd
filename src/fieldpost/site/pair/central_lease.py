"""The lease of this node's epoch at central: requests over the control connection, and their answers.

Requests have numbers and times: an answer counts from the moment at which its request was sent. Nothing is repeated
here; the next request of the loop takes the place of a lost one.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fieldpost.core.errors import FieldpostError
from fieldpost.core.pair.leadership import RENEW_EVERY_S, SILENCE_S, LeaseAnswer, Stamp
from fieldpost.link.messages import EpochAnswer, EpochAsk, EpochGiveBack, EpochRenew, EpochTaken, LinkMessage
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.pair import pair_state
from fieldpost.site.pair.leadership import Leadership

ASK_EVERY_S = 1.0
RELAY_AFTER_S = 4.0
"""How long the pair has not reached central before the standby renews the leader's lease."""
OPEN_MAX = 64
"""How many requests without an answer are remembered."""

SendToCentral = Callable[[LinkMessage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Asked:
    sent_at: float
    message: LinkMessage
    relayed: Stamp | None = None


class CentralLease:
    """The epoch requests of one node."""

    def __init__(self, leadership: Leadership, buffer: Buffer, send: SendToCentral, monotonic: Callable[[], float]):
        self._leadership = leadership
        self._buffer = buffer
        self._send = send
        self._monotonic = monotonic
        self._open: dict[int, _Asked] = {}
        self._last = 0
        self._asked_at = float("-inf")
        self._taken = buffer.read(pair_state.unreported)

    async def sweep(self) -> None:
        """Send the request that is due, if any."""
        now = self._monotonic()
        node = self._leadership.node
        since = now - self._asked_at
        if self._taken is not None:
            if since >= ASK_EVERY_S:
                taken = self._taken
                cause = taken.cause
                assert cause in ("silence", "cut_off", "handed_over", "forced")
                await self._ask(
                    lambda number: EpochTaken(number, taken.epoch, taken.taken_at, cause, taken.reason)  # type: ignore[arg-type]
                )
        elif node.is_leading:
            if since >= RENEW_EVERY_S:
                await self._ask(lambda number: EpochRenew(number, node.held))
        elif self._leadership.is_silent:
            if since >= ASK_EVERY_S:
                await self._ask(lambda number: EpochAsk(number, node.known))
        elif now - node.leader_at < SILENCE_S and now - node.central_at >= RELAY_AFTER_S and since >= RENEW_EVERY_S:
            await self._ask(lambda number: EpochRenew(number, node.known), relayed=node.heard_stamp)

    async def give_back(self, epoch: int) -> None:
        """End the lease, after this node has stopped leading."""
        await self._ask(lambda number: EpochGiveBack(number, epoch))

    def took(self) -> None:
        """Report an epoch that was taken without central."""
        self._taken = self._buffer.read(pair_state.unreported)
        self._asked_at = float("-inf")

    def hear(self, answer: EpochAnswer) -> None:
        """Process an answer; blocks on the buffer's file."""
        asked = self._open.pop(answer.request, None)
        if asked is None:
            return
        is_granted = answer.is_granted
        match asked.message:
            case EpochTaken(epoch=epoch):
                self._buffer.write(pair_state.reported, epoch)
                self._taken = self._buffer.read(pair_state.unreported)
            case EpochGiveBack():
                return
            case EpochRenew() if asked.relayed is not None:
                if is_granted:
                    self._leadership.relayed = asked.relayed
                is_granted = False
            case _:
                pass
        self._leadership.hear_central(LeaseAnswer(sent_at=asked.sent_at, epoch=answer.epoch, is_granted=is_granted))

    async def _ask(self, make: Callable[[int], LinkMessage], relayed: Stamp | None = None) -> None:
        self._last += 1
        message = make(self._last)
        self._asked_at = self._monotonic()
        self._open[self._last] = _Asked(self._asked_at, message, relayed)
        self._open.pop(self._last - OPEN_MAX, None)
        try:
            await self._send(message)
        except FieldpostError:
            # There is no connection: the next sweep tries again.
            self._open.pop(self._last, None)
