"""The carrier of notifications. Delivered means that central has it on disk, which only its ack confirms."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from fieldpost.core.errors import Unavailable
from fieldpost.core.sites.forwarding import CarrierAnswer, NotNow, Refused, answer_from
from fieldpost.core.sites.message import Category
from fieldpost.link.client import LinkClient
from fieldpost.link.connection import LOST
from fieldpost.link.messages import Ack, Item, Refusal
from fieldpost.link.session import LinkSession, Room
from fieldpost.site.buffer.rows import Outgoing

_item = msgspec.json.Decoder(Item)


class CentralCarrier:
    """Sends notifications over the link, in batches limited by the line's speed and central's credits."""

    category = Category.NOTIFICATION

    def __init__(self, client: LinkClient, session: LinkSession) -> None:
        self._client = client
        self._session = session
        self._room = session.room()

    def room(self) -> Room:
        self._room = self._session.room()
        return self._room

    @property
    def may_go_on(self) -> bool:
        return self._session.credits > 0

    async def carry(self, messages: Sequence[Outgoing]) -> Sequence[CarrierAnswer]:
        answers: dict[str, CarrierAnswer] = {}
        items: list[Item] = []
        for message in messages:
            item = _read(message)
            if isinstance(item, Item):
                items.append(item)
            else:
                answers[message.message_id] = item
        if items:
            answers.update(await self._submit(items, _Search(self._is_full(messages))))
        return [answers.get(message.message_id, _UNMENTIONED) for message in messages]

    async def close(self) -> None:
        await self._client.close()

    def _is_full(self, messages: Sequence[Outgoing]) -> bool:
        """Whether the batch nearly fills the limits, so that more messages probably follow."""
        is_many = len(messages) >= self._room.items
        return is_many or 2 * sum(len(message.payload) for message in messages) >= self._room.bytes

    async def _submit(self, items: Sequence[Item], search: "_Search") -> dict[str, CarrierAnswer]:
        if search.is_vain:
            return {item.notification_id: NotNow("central refuses all notifications") for item in items}
        try:
            reply = await self._client.submit(items, search.has_more)
        except Unavailable as error:
            if error.code != LOST:
                raise
            return {item.notification_id: NotNow(error.message) for item in items}
        if isinstance(reply, Ack):
            search.refusals = 0
            return {
                result.notification_id: answer_from(result.verdict, result.code, result.error, result.wait_s)
                for result in reply.results
            }
        search.refusals += 1
        if len(items) > 1 and (_is_for_good(reply) or reply.code == _BUG):
            # One bad item may cause the refusal of all: halving finds it, and the others get through.
            middle = len(items) // 2
            return await self._submit(items[:middle], search) | await self._submit(items[middle:], search)
        if _is_for_good(reply):
            return {items[0].notification_id: Refused(reply.code, reply.error)}
        return {item.notification_id: NotNow(reply.error, reply.wait_s) for item in items}


@dataclass(slots=True)
class _Search:
    """The search for a bad item in a batch, given up after too many refusals in a row."""

    has_more: bool
    """Whether more items follow."""
    refusals: int = 0

    @property
    def is_vain(self) -> bool:
        # Halving 500 items down to one takes nine refusals; three more allow for a second bad item.
        return self.refusals > 12


def _read(message: Outgoing) -> Item | Refused:
    try:
        item = _item.decode(message.payload)
    except msgspec.DecodeError as error:
        return Refused("message.corrupt", f"the buffered payload cannot be read: {error}")
    if item.notification_id != message.message_id:
        return Refused("message.corrupt", "the buffered payload belongs to another notification")
    return item


def _is_for_good(refusal: Refusal) -> bool:
    """Whether central refused the content, rather than asking for a retry."""
    return refusal.code in ("link.invalid", "link.too_large") or refusal.code.startswith(("json.", "submit."))


_BUG = "internal"
"""An internal error of central, perhaps caused by one item. It never moves an item to the rejected box."""
_UNMENTIONED = NotNow("central's answer does not mention this notification")
