"""`/channels`: add, look, change, remove, test. Secrets go in and never come out."""

import msgspec
from msgspec import UNSET, UnsetType

from fieldpost.central.access.audit_trail import KEEP
from fieldpost.core.lists import Channel
from fieldpost.core.retry import to_text
from fieldpost.front.http.call import ApiAnswer, Body, Call
from fieldpost.front.http.endpoint_spec import spec


class NewChannel(Body, frozen=True):
    name: str
    type: str
    settings: dict[str, object]
    secrets: dict[str, object] = msgspec.field(default_factory=dict)
    is_default: bool = False
    retry: str | None = None


class ChangedChannel(Body, frozen=True):
    """Only what changes. Null takes a setting back to its default and clears a secret; an empty secret stays."""

    version: int
    settings: dict[str, object] = msgspec.field(default_factory=dict)
    secrets: dict[str, object] = msgspec.field(default_factory=dict)
    is_default: bool | UnsetType = UNSET
    retry: str | UnsetType | None = UNSET


class NewTest(Body, frozen=True):
    to: str


class ChannelView(msgspec.Struct, frozen=True):
    name: str
    type: str
    settings: dict[str, object]
    secrets: dict[str, str]
    """Of each secret `set`, or `unreadable` when this node lacks its key."""
    retry: str | None
    is_default: bool
    version: int
    warnings: list[str]
    """Settings that are lawful and probably not meant."""


class TestView(msgspec.Struct, frozen=True):
    """What a test came to, and what was said: `>` to the other side, `<` by it."""

    outcome: str
    error: str | None
    said: tuple[str, ...]


class ChannelsView(msgspec.Struct, frozen=True):
    channels: list[ChannelView]


@spec(ChannelView, 201, body=NewChannel, problems=(409,))
async def add(call: Call) -> ApiAnswer:
    """A new channel of a `type` with its `settings` and `secrets`."""
    new = await call.read(NewChannel)
    added = await call.operate.channels.add(
        call.actor, new.name, new.type, new.settings, new.secrets, is_default=new.is_default, retry=new.retry
    )
    return ApiAnswer(_view(call, added), 201)


@spec(ChannelsView)
async def show_all(call: Call) -> ApiAnswer:
    """All channels; of a secret only that there is one."""
    call.query()
    return ApiAnswer(ChannelsView([_view(call, found) for found in await call.operate.channels.all()]))


@spec(ChannelView)
async def show(call: Call) -> ApiAnswer:
    """One channel with its settings."""
    call.query()
    return ApiAnswer(_view(call, await call.operate.channels.get(call.path("name"))))


@spec(ChannelView, body=ChangedChannel, problems=(409,))
async def change(call: Call) -> ApiAnswer:
    """New `settings` (null: back to the default) and `secrets` (null: none); the rest stays. Names the `version`."""
    change = await call.read(ChangedChannel)
    changed = await call.operate.channels.change(
        call.actor,
        call.path("name"),
        change.settings,
        change.version,
        secrets=change.secrets,
        is_default=KEEP if change.is_default is UNSET else change.is_default,
        retry=KEEP if change.retry is UNSET else change.retry,
    )
    return ApiAnswer(_view(call, changed))


@spec(problems=(409,))
async def remove(call: Call) -> ApiAnswer:
    """The channel is gone; refused while a list uses it."""
    await call.operate.channels.remove(call.actor, call.path("name"))
    return ApiAnswer(status=204)


@spec(TestView, body=NewTest, problems=(409,))
async def test(call: Call) -> ApiAnswer:
    """A test sent `to` one target by the channel as it stands; what it came to, and what was said without secrets."""
    wanted = await call.read(NewTest)
    tested = await call.operate.channels.test(call.actor, call.path("name"), wanted.to)
    return ApiAnswer(TestView(tested.outcome.word, tested.outcome.error, tested.said))


def _view(call: Call, found: Channel) -> ChannelView:
    return ChannelView(
        name=found.name,
        type=found.type,
        settings=dict(found.settings),
        secrets=call.operate.channels.shown_secrets(found),
        retry=to_text(found.retry) if found.retry else None,
        is_default=found.is_default,
        version=found.version,
        warnings=call.operate.channels.warnings(found),
    )
