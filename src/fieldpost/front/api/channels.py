"""`/channels`: add, list, show, change, remove and test channels. Secrets can be set but not read."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from msgspec import UNSET, UnsetType

from fieldpost.central.operate.trial import Trial
from fieldpost.core.delivery.retry import to_text
from fieldpost.core.lists import Channel
from fieldpost.front.http.call import Call, changes
from fieldpost.link.http.body import Body
from fieldpost.link.http.endpoint_spec import spec
from fieldpost.link.http.view import View, ViewField, listing, within


class NewChannel(Body, frozen=True):
    name: str
    type: str
    settings: dict[str, object]
    secrets: dict[str, object] = msgspec.field(default_factory=dict)
    is_default: bool = False
    max_retries: int | None = None
    retry_delay_s: float | None = None
    retry: str | None = None


class ChangedChannel(Body, frozen=True):
    """Only the fields to change. Null resets a setting or retry field to its default and clears a secret; an empty
    secret is kept."""

    version: int
    settings: dict[str, object] = msgspec.field(default_factory=dict)
    secrets: dict[str, object] = msgspec.field(default_factory=dict)
    is_default: bool | UnsetType = UNSET
    max_retries: int | UnsetType | None = UNSET
    retry_delay_s: float | UnsetType | None = UNSET
    retry: str | UnsetType | None = UNSET


class NewTest(Body, frozen=True):
    to: str


@dataclass(frozen=True, slots=True)
class ShownChannel:
    """A channel with the state of its secrets and warnings about its settings."""

    channel: Channel
    secrets: Mapping[str, str]
    warnings: list[str]


def _retry(shown: ShownChannel) -> str | None:
    return to_text(shown.channel.retry) if shown.channel.retry else None


def _outcome(trial: Trial) -> str:
    return trial.outcome.word


def _error(trial: Trial) -> str | None:
    return trial.outcome.error


CHANNEL = View(
    "ChannelView",
    ShownChannel,
    within("channel", "name type settings"),
    "secrets",
    within("channel", "max_retries retry_delay_s"),
    ViewField("retry", _retry),
    within("channel", "is_default version"),
    "warnings",
    description="`max_retries` and `retry_delay_s` apply unless `retry`, or the list's `retry`, names another policy. "
    "`secrets` is `set` for each secret, or `unreadable` if this node lacks its key. `warnings` are about "
    "settings that are valid but probably unintended.",
)
CHANNELS = listing("ChannelsView", "channels", CHANNEL)
TEST = View(
    "TestView",
    Trial,
    ViewField("outcome", _outcome),
    ViewField("error", _error),
    "transcript",
    description="The outcome of a test, and the conversation: lines sent start with `>`, lines received with `<`.",
)


@spec(CHANNEL, 201, body=NewChannel, problems=(409,))
async def add(call: Call) -> ShownChannel:
    """Add a channel of a `type` with its `settings`, `secrets` and retry fields."""
    new = await call.read(NewChannel)
    added = await call.operate.channels.add(
        call.actor,
        new.name,
        new.type,
        new.settings,
        new.secrets,
        is_default=new.is_default,
        retry=new.retry,
        max_retries=new.max_retries,
        retry_delay_s=new.retry_delay_s,
    )
    return _shown(call, added)


@spec(CHANNELS)
async def show_all(call: Call) -> list[ShownChannel]:
    """List all channels; a secret is shown only as set."""
    return [_shown(call, found) for found in await call.operate.channels.all()]


@spec(CHANNEL)
async def show(call: Call) -> ShownChannel:
    """Show one channel with its settings."""
    return _shown(call, await call.operate.channels.get(call.path("name")))


@spec(CHANNEL, body=ChangedChannel, problems=(409,))
async def change(call: Call) -> ShownChannel:
    """Change `settings` (null resets to the default) and `secrets` (null clears); other fields stay. Requires the
    `version` that the caller has seen."""
    change = await call.read(ChangedChannel)
    changed = await call.operate.channels.change(
        call.actor, call.path("name"), version=change.version, **changes(change)
    )
    return _shown(call, changed)


@spec(problems=(409,))
async def remove(call: Call) -> None:
    """Remove a channel; rejected while a list uses it."""
    await call.operate.channels.remove(call.actor, call.path("name"))


@spec(TEST, body=NewTest, problems=(409,))
async def test(call: Call) -> Trial:
    """Send a test message `to` one target through the channel and return the conversation without secrets."""
    wanted = await call.read(NewTest)
    return await call.operate.channels.test(call.actor, call.path("name"), wanted.to)


def _shown(call: Call, channel: Channel) -> ShownChannel:
    channels = call.operate.channels
    return ShownChannel(channel, channels.shown_secrets(channel), channels.warnings(channel))
