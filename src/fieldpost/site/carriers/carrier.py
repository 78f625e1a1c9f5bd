"""The protocols of carriers: the code that takes messages of one category out of the site."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol, TypeVar

from fieldpost.core.sites.forwarding import CarrierAnswer
from fieldpost.core.sites.message import Category, Message
from fieldpost.link.session import Room
from fieldpost.site.buffer.rows import Outgoing


class Carrier(Protocol):
    """A carrier of notifications, which go to central in batches."""

    category: Category

    def room(self) -> Room:
        """The limits of the next batch."""

    async def carry(self, messages: Sequence[Outgoing]) -> Sequence[CarrierAnswer]:
        """Send these messages; one answer each, in their order.

        Raises Denied, Unavailable or ConfigError if none of them left the site.
        """

    @property
    def may_go_on(self) -> bool:
        """Whether the other side accepts another batch immediately."""

    async def close(self) -> None:
        """Close connections."""


class Definition(Protocol):
    """The settings of an external system or a database connection that forwarding uses."""

    @property
    def name(self) -> str: ...
    @property
    def timeout_s(self) -> float: ...
    @property
    def retry_interval(self) -> timedelta: ...
    @property
    def retries_max(self) -> int: ...


D = TypeVar("D", bound=Definition)
D_contra = TypeVar("D_contra", contravariant=True, bound=Definition)


class CallCarrier(Protocol[D_contra]):
    """Makes attempts of cached calls, in the agent and in the process of the calling script.

    Used from one event loop, with many attempts in progress at a time.
    """

    category: Category

    async def attempt(self, message: Message, definition: D_contra | None) -> CarrierAnswer:
        """Make one attempt within the definition's timeout; without a definition the answer is a refusal.

        External failures are answers, never exceptions.
        """

    async def close(self) -> None:
        """Close connections."""
