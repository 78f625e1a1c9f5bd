"""The batches of one sweep that are on their way: the next is taken while those before it are being answered.

Batches are taken in the order of their commits, each one behind the last, so that nothing is on its way twice; they are
settled in the order of their answers. Until the first has been answered it stays alone: a link that is down should cost
one look at the buffer, and not several. Every so often the flight lands before the next batch is taken from the front
again, since what has become due meanwhile stands before what is being taken.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from fieldpost.core.errors import FieldpostError
from fieldpost.core.sites.forwarding import CarrierAnswer
from fieldpost.link.session import Room
from fieldpost.site.buffer.rows import Outgoing
from fieldpost.site.carriers.carrier import Carrier

Take = Callable[[Room, int], Awaitable[list[Outgoing]]]
"""The oldest due messages that fit into the room and were committed after the one of this sequence."""


class BatchesInFlight:
    """Batches between the buffer and a carrier."""

    def __init__(self, carrier: Carrier, take: Take, monotonic: Callable[[], float], front_every_s: float) -> None:
        self._carrier = carrier
        self._take = take
        self._monotonic = monotonic
        self._front_every_s = front_every_s
        self._under_way: dict[asyncio.Task[Sequence[CarrierAnswer]], Sequence[Outgoing]] = {}
        self._after = 0
        self._front_at = monotonic()
        self._is_proven = False

    @property
    def has_landed(self) -> bool:
        """Whether nothing is on its way."""
        return not self._under_way

    async def fill(self) -> None:
        """Take and send as much as the carrier has room for now."""
        if not self._under_way:
            self._after, self._front_at = 0, self._monotonic()
        while self._may_take() and (room := self._carrier.room()).items:
            messages = await self._take(room, self._after)
            if not messages:
                return
            self._after = messages[-1].sequence
            self._under_way[asyncio.create_task(self._carry(messages), name="carry")] = messages
            # It begins before the room for the next is asked for.
            await asyncio.sleep(0)

    async def answered(self) -> tuple[Sequence[Outgoing], Sequence[CarrierAnswer] | FieldpostError]:
        """The next batch that has an answer, with it, or with why none of it left the site."""
        done, _ = await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
        task = next(task for task in self._under_way if task in done)
        messages = self._under_way.pop(task)
        try:
            answers = task.result()
        except FieldpostError as error:
            return messages, error
        self._is_proven = True
        return messages, answers

    async def abandon(self) -> None:
        """Wait for nothing more: what is on its way stays in the buffer, and is sent again."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        self._under_way.clear()

    def _may_take(self) -> bool:
        if not self._under_way:
            return True
        return self._is_proven and self._monotonic() - self._front_at < self._front_every_s

    async def _carry(self, messages: Sequence[Outgoing]) -> Sequence[CarrierAnswer]:
        return await self._carrier.carry(messages)
