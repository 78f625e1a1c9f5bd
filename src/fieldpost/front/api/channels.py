"""`/channels`: add, list, show, change, remove and test channels. Secrets can be set but not read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from fieldpost.central.operate.trial import Trial
from fieldpost.central.watch.channels import ChannelState
from fieldpost.core.delivery.backlog import Backlog, BacklogPause, ListBacklog
from fieldpost.core.delivery.retry import to_text
from fieldpost.core.lists import Channel
from fieldpost.front.http.call import Call, changes
from fieldpost.link.http.body import Body, RowVersion
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
    rate: str | None = None
    receipt_wait_s: float | None = None
    receipt_missing: str | None = None


class ChangedChannel(Body, frozen=True):
    """Only the fields to change. Null resets a setting or retry field to its default and clears a secret; an empty
    secret is kept."""

    version: RowVersion
    settings: dict[str, object] = msgspec.field(default_factory=dict)
    secrets: dict[str, object] = msgspec.field(default_factory=dict)
    is_default: bool | UnsetType = UNSET
    max_retries: int | UnsetType | None = UNSET
    retry_delay_s: float | UnsetType | None = UNSET
    retry: str | UnsetType | None = UNSET
    rate: str | UnsetType | None = UNSET
    receipt_wait_s: float | UnsetType | None = UNSET
    receipt_missing: str | UnsetType | None = UNSET


class NewTest(Body, frozen=True):
    to: str


@dataclass(frozen=True, slots=True)
class ShownChannel:
    """A channel with the state of its secrets and warnings about its settings."""

    state: ChannelState
    secrets: Mapping[str, str]
    warnings: list[str]

    @property
    def channel(self) -> Channel:
        return self.state.channel

    @property
    def backlog(self) -> Backlog:
        return self.state.backlog


def _retry(shown: ShownChannel) -> str | None:
    return to_text(shown.channel.retry) if shown.channel.retry else None


def _rate(limited: Any) -> str | None:
    return limited.rate.text if limited.rate else None


def _own_rate(shown: ShownChannel) -> str | None:
    return _rate(shown.channel)


def _outcome(trial: Trial) -> str:
    return trial.outcome.word


def _error(trial: Trial) -> str | None:
    return trial.outcome.error


BACKLOG = View(
    "BacklogView",
    Backlog,
    ViewField("rate", _rate),
    ViewField("pauses", view=View("BacklogPauseView", BacklogPause, "list_name target until reason")),
    "waiting has_more empty_at",
    ViewField(
        "lists",
        view=View("ListBacklogView", ListBacklog, "list_name", ViewField("rate", _rate), "waiting empty_at"),
    ),
    description="Notifications that wait for a rate or a pause, and when the last of them starts if no further one "
    "arrives (`empty_at`). `rate` is the one in force, null if there is none. A pause without a `list_name` is the "
    "channel's. If `has_more`, more notifications wait than were counted, and `empty_at` is the earliest time.",
)
CHANNEL = View(
    "ChannelView",
    ShownChannel,
    within("channel", "name type settings"),
    "secrets",
    within("channel", "max_retries retry_delay_s"),
    ViewField("retry", _retry),
    ViewField("rate", _own_rate),
    within("channel", "receipt_wait_s receipt_missing is_default version"),
    "warnings health=state.health held=state.held",
    ViewField("backlog", view=BACKLOG),
    description="`max_retries` and `retry_delay_s` apply unless `retry`, or the list's `retry`, names another policy. "
    "`rate` is null for the default of the type. "
    "`secrets` is `set` for each secret, or `unreadable` if this node lacks its key. `warnings` are about "
    "settings that are valid but probably unintended. `held` counts the notifications behind its breaker, or those of "
    "its lists.",
)
CHANNELS = listing("ChannelsView", "channels", CHANNEL)
TEST = View(
    "TestView",
    Trial,
    ViewField("outcome", _outcome),
    ViewField("error", _error),
    "transcript cost",
    description="The outcome of a test, and the conversation: lines sent start with `>`, lines received with `<`. "
    "`cost` is the cost of the test's text, if the provider bills by its length.",
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
        rate=new.rate,
        receipt_wait_s=new.receipt_wait_s,
        receipt_missing=new.receipt_missing,
    )
    return await _read(call, added.name)


@spec(CHANNELS)
async def show_all(call: Call) -> list[ShownChannel]:
    """List all channels; a secret is shown only as set."""
    found = (await call.watch.channels.all()).channels
    return [_shown(call, state) for state in sorted(found, key=lambda state: state.channel.name)]


@spec(CHANNEL)
async def show(call: Call) -> ShownChannel:
    """Show one channel with its settings."""
    return await _read(call, call.path("name"))


@spec(CHANNEL, body=ChangedChannel, problems=(409,))
async def change(call: Call) -> ShownChannel:
    """Change `settings` (null resets to the default) and `secrets` (null clears); other fields stay. Requires the
    `version` that the caller has seen."""
    change = await call.read(ChangedChannel)
    changed = await call.operate.channels.change(
        call.actor, call.path("name"), version=change.version, **changes(change)
    )
    return await _read(call, changed.name)


@spec(problems=(409,))
async def remove(call: Call) -> None:
    """Remove a channel; rejected while a list uses it."""
    await call.operate.channels.remove(call.actor, call.path("name"))


@spec(TEST, body=NewTest, problems=(409,))
async def test(call: Call) -> Trial:
    """Send a test message `to` one target through the channel and return the conversation without secrets."""
    wanted = await call.read(NewTest)
    return await call.operate.channels.test(call.actor, call.path("name"), wanted.to)


async def _read(call: Call, name: str) -> ShownChannel:
    return _shown(call, (await call.watch.channels.one(name))[0])


def _shown(call: Call, state: ChannelState) -> ShownChannel:
    channels = call.operate.channels
    return ShownChannel(state, channels.shown_secrets(state.channel), channels.warnings(state.channel))
