"""`/channels`: add, look, change, remove. Secrets go in and never come out."""

import msgspec

from fieldpost.core.lists import Channel
from fieldpost.core.retry import to_text
from fieldpost.front.api.call import Answer, Body, Call


class NewChannel(Body, frozen=True):
    name: str
    type: str
    settings: dict[str, object]
    is_default: bool = False
    retry: str | None = None


class ChangedSettings(Body, frozen=True):
    """Only the settings to change; null takes one away."""

    settings: dict[str, object]
    version: int


class ChannelView(msgspec.Struct, frozen=True):
    name: str
    type: str
    settings: dict[str, object]
    retry: str | None
    is_default: bool
    version: int


class ChannelsView(msgspec.Struct, frozen=True):
    channels: list[ChannelView]


async def add(call: Call) -> Answer:
    """A new channel of a `type` with its `settings`."""
    new = await call.read(NewChannel)
    added = await call.operate.channels.add(
        call.actor, new.name, new.type, new.settings, is_default=new.is_default, retry=new.retry
    )
    return Answer(_view(call, added), 201)


async def show_all(call: Call) -> Answer:
    """All channels; of a secret setting only that there is one."""
    call.query()
    return Answer(ChannelsView([_view(call, found) for found in await call.operate.channels.all()]))


async def show(call: Call) -> Answer:
    """One channel with its settings."""
    call.query()
    return Answer(_view(call, await call.operate.channels.get(call.path("name"))))


async def change(call: Call) -> Answer:
    """New values for some `settings` (null takes one back to its default); names the `version` that was seen."""
    change = await call.read(ChangedSettings)
    name = call.path("name")
    return Answer(_view(call, await call.operate.channels.change(call.actor, name, change.settings, change.version)))


async def remove(call: Call) -> Answer:
    """The channel is gone; refused while a list names it."""
    await call.operate.channels.remove(call.actor, call.path("name"))
    return Answer(status=204)


def _view(call: Call, found: Channel) -> ChannelView:
    settings = call.operate.channels.shown_settings(found)
    retry = to_text(found.retry) if found.retry else None
    return ChannelView(found.name, found.type, settings, retry, found.is_default, found.version)
