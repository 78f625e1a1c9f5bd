"""The backlog of a channel: notifications that wait for a rate or a pause, and when the last of them starts.

A rate is the list's or the channel's; a pause is of the channel, of one list or of one target. The forecast assumes
that the rates are used fully and that no further notification arrives. With a rate of the channel the order among its
lists is not known, so each of them may be the last.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from fieldpost.core.delivery.rate import Rate, turn


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogPause:
    """A provider asked for no further request for a time."""

    until: datetime
    reason: str
    list_name: str | None = None
    """The list that pauses; None for the whole channel."""
    target: str | None = None
    """The target of that list that pauses; None for the whole list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListBacklog:
    """The part of one list in the backlog of its channel."""

    list_name: str
    waiting: int
    rate: Rate | None = None
    """The list's own rate, else the default of its type; None if it is not limited."""
    empty_at: datetime | None = None
    """When the last of its waiting notifications starts; None if none waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Waiting notifications of one channel."""

    rate: Rate | None = None
    """The channel's own rate, else the default of its type; None if it is not limited."""
    pauses: Sequence[BacklogPause] = ()
    """The pause of the channel first, then those that end last."""
    waiting: int = 0
    has_more: bool = False
    """Whether more wait than were counted; `empty_at` is then the earliest possible time."""
    empty_at: datetime | None = None
    """When the last waiting notification starts; None if none waits."""
    lists: Sequence[ListBacklog] = ()
    """The lists that have a rate or waiting notifications, those with most of them first."""

    @property
    def pause(self) -> BacklogPause | None:
        """The pause of the whole channel."""
        return next((one for one in self.pauses if one.list_name is None), None)


NO_BACKLOG = Backlog()


def backlog(
    *,
    rate: tuple[Rate, datetime | None] | None,
    lists: Mapping[str, tuple[int, Rate | None, datetime | None]],
    pauses: Sequence[BacklogPause],
    has_more: bool,
    at: datetime,
) -> Backlog:
    """The backlog of a channel.

    `rate` is the channel's rate with its state, `lists` gives for each list how many wait, its rate and the state of
    that. Pauses that are over are left out.
    """
    current = sorted(
        (one for one in pauses if one.until > at), key=lambda one: (one.list_name is not None, -one.until.timestamp())
    )
    waiting = sum(count for count, _, _ in lists.values())
    starts = {
        name: max([at, *(one.until for one in current if one.target is None and one.list_name in (None, name))])
        for name in lists
    }
    shared = None
    if rate is not None and waiting:
        shared = turn(rate[0], rate[1], waiting - 1, min(starts[name] for name in lists if lists[name][0]))
    found = [
        ListBacklog(
            list_name=name,
            waiting=count,
            rate=own,
            empty_at=_last(count, own, state, starts[name], shared),
        )
        for name, (count, own, state) in lists.items()
        if count or own is not None
    ]
    found.sort(key=lambda one: (-one.waiting, one.list_name))
    return Backlog(
        rate=rate[0] if rate else None,
        pauses=current,
        waiting=waiting,
        has_more=has_more,
        empty_at=max((one.empty_at for one in found if one.empty_at is not None), default=None),
        lists=found,
    )


def _last(
    count: int, rate: Rate | None, state: datetime | None, start: datetime, shared: datetime | None
) -> datetime | None:
    if not count:
        return None
    own = start if rate is None else turn(rate, state, count - 1, start)
    return own if shared is None else max(own, shared)
