"""`/lists`: add, look, remove."""

import msgspec

from fieldpost.core.lists import NotificationList
from fieldpost.core.retry import to_text
from fieldpost.front.api.call import Answer, Body, Call


class NewList(Body, frozen=True):
    name: str
    targets: list[str]
    type: str = "email"
    channel: str | None = None
    park_uncertain: bool = False
    retry: str | None = None


class ListView(msgspec.Struct, frozen=True):
    name: str
    type: str
    targets: tuple[str, ...]
    channel: str | None
    park_uncertain: bool
    retry: str | None
    version: int


class ListsView(msgspec.Struct, frozen=True):
    lists: list[ListView]


async def add(call: Call) -> Answer:
    """A new list of `targets` of one `type`, by its own `channel` or the default of the type."""
    new = await call.read(NewList)
    added = await call.operate.lists.add(
        call.actor,
        new.name,
        new.type,
        new.targets,
        new.channel,
        park_uncertain=new.park_uncertain,
        retry=new.retry,
    )
    return Answer(_view(added), 201)


async def show_all(call: Call) -> Answer:
    """All lists."""
    call.query()
    return Answer(ListsView([_view(found) for found in await call.operate.lists.all()]))


async def show(call: Call) -> Answer:
    """One list with all its targets."""
    call.query()
    return Answer(_view(await call.operate.lists.get(call.path("name"))))


async def remove(call: Call) -> Answer:
    """The list is gone; what comes for it later parks, naming it."""
    await call.operate.lists.remove(call.actor, call.path("name"))
    return Answer(status=204)


def _view(found: NotificationList) -> ListView:
    retry = to_text(found.retry) if found.retry else None
    return ListView(
        found.name, found.type, found.targets, found.channel_name, found.park_uncertain, retry, found.version
    )
