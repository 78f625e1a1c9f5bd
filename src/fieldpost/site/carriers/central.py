"""Notifications to central: delivery means that central has it on disk, and only its ack says so."""

from collections.abc import Sequence

import msgspec

from fieldpost.core.errors import Unavailable
from fieldpost.core.forwarding import Answer, NotNow, Refused, answer_from
from fieldpost.core.message import Category, Message
from fieldpost.link.client import LOST, LinkClient
from fieldpost.link.messages import Ack, Item, Refusal
from fieldpost.link.session import Room, Session

_item = msgspec.json.Decoder(Item)


class CentralCarrier:
    """Carries notifications over the link, in batches as large as the line and central's credits allow."""

    category = Category.NOTIFICATION

    def __init__(self, client: LinkClient, session: Session) -> None:
        self._client = client
        self._session = session

    def room(self) -> Room:
        return self._session.room()

    @property
    def may_go_on(self) -> bool:
        return self._session.credits > 0

    async def carry(self, messages: Sequence[Message]) -> Sequence[Answer]:
        answers: dict[str, Answer] = {}
        items: list[Item] = []
        for message in messages:
            item = _read(message)
            if isinstance(item, Item):
                items.append(item)
            else:
                answers[message.message_id] = item
        if items:
            answers.update(await self._submit(items))
        return [answers.get(message.message_id, _UNMENTIONED) for message in messages]

    async def close(self) -> None:
        await self._client.close()

    async def _submit(self, items: Sequence[Item]) -> dict[str, Answer]:
        try:
            reply = await self._client.submit(items)
        except Unavailable as error:
            if error.code != LOST:
                raise
            return {item.notification_id: NotNow(error.message) for item in items}
        match reply:
            case Ack():
                return {
                    result.notification_id: answer_from(result.verdict, result.code, result.error, result.wait_s)
                    for result in reply.results
                }
            case Refusal() if not _is_for_good(reply):
                return {item.notification_id: NotNow(reply.error, reply.wait_s) for item in items}
            case Refusal() if len(items) == 1:
                return {items[0].notification_id: Refused(reply.code, reply.error)}
            case Refusal():
                # One bad item spoils the whole message: halving finds it, and the others pass.
                middle = len(items) // 2
                return await self._submit(items[:middle]) | await self._submit(items[middle:])


def _read(message: Message) -> Item | Refused:
    try:
        item = _item.decode(message.payload)
    except msgspec.DecodeError as error:
        return Refused("message.corrupt", f"the buffered payload cannot be read: {error}")
    if item.notification_id != message.message_id:
        return Refused("message.corrupt", "the buffered payload is that of another notification")
    return item


def _is_for_good(refusal: Refusal) -> bool:
    """Whether it was the content that central refused, and not the moment."""
    return refusal.code in ("link.invalid", "link.too_large") or refusal.code.startswith("json.")


_UNMENTIONED = NotNow("central's answer does not mention it")
