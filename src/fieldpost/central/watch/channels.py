"""Queries of channels: breaker, held notifications, backlog and the lists that use each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import present
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import breakers, lists, pauses, rates
from fieldpost.central.store.notifications.turns import queue_of
from fieldpost.core.delivery.backlog import NO_BACKLOG, Backlog, BacklogPause, backlog
from fieldpost.core.delivery.breaker import Breaker, BreakerState, channel_key, is_waiting
from fieldpost.core.delivery.outcome import TargetPause
from fieldpost.core.delivery.routing import PLAIN_TYPE, Directory, TypeTraits, lists_by_channel, rates_of
from fieldpost.core.lists import Channel
from fieldpost.core.notification import list_key

HELD_MAX = 10_000
"""Held notifications, and those of each queue, are counted up to this number."""


@dataclass(frozen=True, slots=True)
class ChannelState:
    """One channel with its breaker, held notifications and lists."""

    channel: Channel
    breaker: Breaker
    """A closed one if the channel was never tried."""
    held: int
    """Notifications held by its breaker, or by those of its lists; HELD_MAX means at least that number."""
    lists: Sequence[str]
    """The lists that use it, by name or as the default of their type."""
    is_tried: bool
    """Whether a delivery by this channel was ever attempted."""
    backlog: Backlog = NO_BACKLOG
    """Notifications that wait for a rate or a pause."""
    list_breakers: Mapping[str, Breaker] = field(default_factory=dict)
    """By list, if each target has a separate URL: then each list has a breaker and the channel has none."""

    @property
    def health(self) -> str:
        """The state as every surface shows it: blocked, monitored, healthy or untried. If lists have their
        own breakers, a failing one makes the channel monitored."""
        if self.list_breakers:
            return "monitored" if self.failing_lists else "healthy"
        return self.breaker.health if self.is_tried else "untried"

    @property
    def failing_lists(self) -> Sequence[str]:
        """The lists whose own breaker is blocked or counts failures, the blocked ones first."""
        failing = {name: one for name, one in self.list_breakers.items() if one.health != "healthy"}
        return sorted(failing, key=lambda name: (failing[name].health != "blocked", name))

    @property
    def blocked_lists(self) -> Sequence[str]:
        """The lists whose own breaker is blocked."""
        return [name for name in self.failing_lists if self.list_breakers[name].health == "blocked"]

    @property
    def is_blocked(self) -> bool:
        return self.breaker.state is not BreakerState.CLOSED


@dataclass(frozen=True, slots=True)
class ChannelOverview:
    """All channels, failing ones first, then by name; and the lists without a channel."""

    channels: Sequence[ChannelState]
    lists_without: Sequence[str]
    as_of: datetime


class ChannelReader:
    """Reads channels."""

    def __init__(self, store: Store, types: Mapping[str, TypeTraits] | None = None) -> None:
        self._store = store
        self._types = types or {}

    async def all(self) -> ChannelOverview:
        return await self._store.read(_overview, self._types, now=self._store.now())

    async def one(self, name: str) -> tuple[ChannelState, datetime]:
        """One channel and the time of the query. Raises NotFound."""
        overview = await self.all()
        found = next((state for state in overview.channels if state.channel.name == name), None)
        return present(found, "channel", name), overview.as_of


def _overview(conn: Connection, types: Mapping[str, TypeTraits], *, now: datetime | None) -> ChannelOverview:
    directory, at = lists.directory(conn), database_time(conn, now)
    found, held = breakers.of_channels_and_lists(conn), breakers.held_counts(conn, HELD_MAX)
    users = lists_by_channel(directory)
    backlogs = _backlogs(conn, directory, users, found, held, types, at)
    states = [
        ChannelState(
            channel,
            found.get(key, Breaker(key)),
            sum(held.get(one, 0) for one in (key, *map(list_key, users.get(channel.name, ())))),
            users.get(channel.name, ()),
            key in found,
            backlogs[channel.name],
            {name: found[own] for name in users.get(channel.name, ()) if (own := list_key(name)) in found},
        )
        for channel in directory.channels.values()
        for key in [channel_key(channel.name)]
    ]
    states.sort(key=lambda state: (not state.is_blocked, state.health != "monitored", state.channel.name))
    return ChannelOverview(states, users.get(None, ()), at)


def _backlogs(
    conn: Connection,
    directory: Directory,
    users: Mapping[str | None, Sequence[str]],
    found: Mapping[str, Breaker],
    held: Mapping[str, int],
    types: Mapping[str, TypeTraits],
    at: datetime,
) -> dict[str, Backlog]:
    """The backlog of each channel, by name."""
    paused = {
        channel.name: _pauses(channel, users.get(channel.name, ()), found, of_targets, at)
        for of_targets in [_by_list(pauses.current(conn, at))]
        for channel in directory.channels.values()
    }
    waiting = _waiting(conn, users, paused, held, at)
    path_rates = {
        name: dict(rates_of(directory.lists[name], channel, types.get(channel.type, PLAIN_TYPE)))
        for channel in directory.channels.values()
        for name in users.get(channel.name, ())
    }
    states = rates.read(conn, sorted({key for name in waiting for key in path_rates.get(name, ())}))
    backlogs = {}
    for channel in directory.channels.values():
        key, names = channel_key(channel.name), users.get(channel.name, ())
        rate = channel.rate or types.get(channel.type, PLAIN_TYPE).channel_rate
        backlogs[channel.name] = backlog(
            rate=(rate, states.get(key)) if rate else None,
            lists={
                name: (waiting.get(name, 0), path_rates[name].get(own), states.get(own))
                for name in names
                for own in [list_key(name)]
            },
            pauses=paused[channel.name],
            has_more=any(waiting.get(name, 0) >= HELD_MAX for name in names),
            at=at,
        )
    return backlogs


def _by_list(found: Sequence[TargetPause]) -> dict[str, list[TargetPause]]:
    by_key: dict[str, list[TargetPause]] = {}
    for one in found:
        by_key.setdefault(one.delivery_key, []).append(one)
    return by_key


def _pauses(
    channel: Channel,
    names: Sequence[str],
    found: Mapping[str, Breaker],
    of_targets: Mapping[str, Sequence[TargetPause]],
    at: datetime,
) -> list[BacklogPause]:
    """The pauses of a channel, of its lists with their own breakers, and of their targets."""
    owners = [(channel_key(channel.name), None), *((list_key(name), name) for name in names)]
    of_paths = [
        BacklogPause(until=breaker.wait_until, reason=breaker.wait_reason or "", list_name=name)
        for key, name in owners
        if (breaker := found.get(key)) and breaker.wait_until and is_waiting(breaker, at)
    ]
    return of_paths + [
        BacklogPause(until=one.until, reason=one.reason, list_name=name, target=one.address)
        for name in names
        for one in of_targets.get(list_key(name), ())
    ]


def _waiting(
    conn: Connection,
    users: Mapping[str | None, Sequence[str]],
    paused: Mapping[str, Sequence[BacklogPause]],
    held: Mapping[str, int],
    at: datetime,
) -> dict[str, int]:
    """How many notifications of each list wait for a rate or a pause; lists without any are left out."""
    ends = [one.until for found in paused.values() for one in found]
    keys = {list_key(name): name for channel, found in paused.items() if found for name in users.get(channel, ())}
    behind_pauses = pauses.waiting(conn, list(keys), at, max(ends), HELD_MAX) if ends else {}
    counts = {keys[key]: count for key, count in behind_pauses.items()}
    for name in (name for channel, names in users.items() if channel is not None for name in names):
        queued = sum(held.get(queue_of(list_key(name), is_critical), 0) for is_critical in (True, False))
        if queued:
            counts[name] = counts.get(name, 0) + queued
    return counts
