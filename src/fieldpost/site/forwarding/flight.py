"""The in-flight batches of one sweep: the next batch is taken before the previous ones are answered.

Batches are taken in commit order, each after the previous one, so that no message is in flight twice; they are settled
in the order of their answers. The first batch goes alone until it is answered, so that a link that is down costs one
query of the buffer. From time to time all batches are awaited and the next is taken from the start of the queue,
because messages that have become due meanwhile are before the current position.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from fieldpost.core.errors import FieldpostError
from fieldpost.core.sites.forwarding import CarrierAnswer
from fieldpost.link.session import Room
from fieldpost.site.buffer.rows import Outgoing
from fieldpost.site.carriers.carrier import Carrier

Take = Callable[[Room, int], Awaitable[list[Outgoing]]]
"""Takes the oldest due messages that fit the limits and have a higher sequence."""


class BatchesInFlight:
    """Batches between the buffer and a carrier."""

    def __init__(self, carrier: Carrier, take: Take, monotonic: Callable[[], float], front_every_s: float) -> None:
        self._carrier = carrier
        self._take = take
        self._monotonic = monotonic
        self._front_every_s = front_every_s
        self._in_flight: dict[asyncio.Task[Sequence[CarrierAnswer]], Sequence[Outgoing]] = {}
        self._after = 0
        self._front_at = monotonic()
        self._is_proven = False

    @property
    def has_landed(self) -> bool:
        """Whether no batch is in flight."""
        return not self._in_flight

    async def fill(self) -> None:
        """Take and send as many batches as the carrier accepts now."""
        if not self._in_flight:
            self._after, self._front_at = 0, self._monotonic()
        while self._may_take() and (room := self._carrier.room()).items:
            messages = await self._take(room, self._after)
            if not messages:
                return
            self._after = messages[-1].sequence
            self._in_flight[asyncio.create_task(self._carry(messages), name="carry")] = messages
            # Let it start before the limits of the next batch are read.
            await asyncio.sleep(0)

    async def answered(self) -> tuple[Sequence[Outgoing], Sequence[CarrierAnswer] | FieldpostError]:
        """The next answered batch and its answers, or the error if none of it left the site."""
        done, _ = await asyncio.wait(self._in_flight, return_when=asyncio.FIRST_COMPLETED)
        task = next(task for task in self._in_flight if task in done)
        messages = self._in_flight.pop(task)
        try:
            answers = task.result()
        except FieldpostError as error:
            return messages, error
        self._is_proven = True
        return messages, answers

    async def abandon(self) -> None:
        """Cancel all batches. Their messages stay in the buffer and are sent again."""
        for task in self._in_flight:
            task.cancel()
        await asyncio.gather(*self._in_flight, return_exceptions=True)
        self._in_flight.clear()

    def _may_take(self) -> bool:
        if not self._in_flight:
            return True
        return self._is_proven and self._monotonic() - self._front_at < self._front_every_s

    async def _carry(self, messages: Sequence[Outgoing]) -> Sequence[CarrierAnswer]:
        return await self._carrier.carry(messages)
