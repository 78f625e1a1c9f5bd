"""The channels as people see them: which is the default, whether anything is sent by it now, and for which lists."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import not_found
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import breakers, lists
from fieldpost.core.breaker import Breaker, BreakerState, channel_key
from fieldpost.core.lists import Channel

HELD_MAX = 10_000
"""So many held notifications are counted at most."""


@dataclass(frozen=True, slots=True)
class ChannelState:
    """One channel, its breaker, and what hangs on it."""

    channel: Channel
    breaker: Breaker
    """As good as new where none was ever needed."""
    held: int
    """Notifications that wait behind its breaker; HELD_MAX means so many or more."""
    lists: Sequence[str]
    """The lists that go out by it, by its name or since it is the default of their type."""

    @property
    def is_blocked(self) -> bool:
        return self.breaker.state is not BreakerState.CLOSED


@dataclass(frozen=True, slots=True)
class ChannelOverview:
    """All channels, trouble first and then by name; and the lists that have none."""

    channels: Sequence[ChannelState]
    lists_without: Sequence[str]
    as_of: datetime


class ChannelReader:
    """Looking at channels."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def all(self) -> ChannelOverview:
        return await self._store.read(_look, now=self._store.now())

    async def one(self, name: str) -> tuple[ChannelState, datetime]:
        """NotFound when there is none of that name."""
        ways = await self.all()
        for state in ways.channels:
            if state.channel.name == name:
                return state, ways.as_of
        raise not_found("channel", name)


def _look(conn: Connection, *, now: datetime | None) -> ChannelOverview:
    directory = lists.directory(conn)
    found, held = breakers.load(conn), breakers.held_counts(conn, HELD_MAX)
    users: dict[str | None, list[str]] = {}
    for name in sorted(directory.lists):
        channel = directory.channel_of(directory.lists[name])
        users.setdefault(channel.name if channel else None, []).append(name)
    states = [
        ChannelState(channel, found.get(key, Breaker(key)), held.get(key, 0), users.get(channel.name, ()))
        for channel in directory.channels.values()
        for key in [channel_key(channel.name)]
    ]
    states.sort(key=lambda state: (not state.is_blocked, not state.breaker.failures, state.channel.name))
    return ChannelOverview(states, users.get(None, ()), database_time(conn, now))
