"""Queries of channels: breaker, held notifications and the lists that use each."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import present
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import breakers, lists
from fieldpost.core.delivery.breaker import Breaker, BreakerState, channel_key
from fieldpost.core.delivery.routing import lists_by_channel
from fieldpost.core.lists import Channel

HELD_MAX = 10_000
"""Held notifications are counted up to this number."""


@dataclass(frozen=True, slots=True)
class ChannelState:
    """One channel with its breaker, held notifications and lists."""

    channel: Channel
    breaker: Breaker
    """A closed one if the channel was never tried."""
    held: int
    """Notifications held by its breaker; HELD_MAX means at least that number."""
    lists: Sequence[str]
    """The lists that use it, by name or as the default of their type."""
    is_tried: bool
    """Whether a delivery by this channel was ever attempted."""

    @property
    def health(self) -> str:
        """The state as every surface shows it: blocked, monitored, healthy or untried."""
        return self.breaker.health if self.is_tried else "untried"

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

    def __init__(self, store: Store) -> None:
        self._store = store

    async def all(self) -> ChannelOverview:
        return await self._store.read(_overview, now=self._store.now())

    async def one(self, name: str) -> tuple[ChannelState, datetime]:
        """One channel and the time of the query. Raises NotFound."""
        overview = await self.all()
        found = next((state for state in overview.channels if state.channel.name == name), None)
        return present(found, "channel", name), overview.as_of


def _overview(conn: Connection, *, now: datetime | None) -> ChannelOverview:
    directory = lists.directory(conn)
    found, held = breakers.load(conn), breakers.held_counts(conn, HELD_MAX)
    users = lists_by_channel(directory)
    states = [
        ChannelState(channel, found.get(key, Breaker(key)), held.get(key, 0), users.get(channel.name, ()), key in found)
        for channel in directory.channels.values()
        for key in [channel_key(channel.name)]
    ]
    states.sort(key=lambda state: (not state.is_blocked, not state.breaker.failures, state.channel.name))
    return ChannelOverview(states, users.get(None, ()), database_time(conn, now))
