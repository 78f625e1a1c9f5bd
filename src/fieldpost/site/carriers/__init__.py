"""Who takes which category of message out of the site: one module per category. Imports: core, link, outbound."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol, TypeVar

from fieldpost.core.sites.forwarding import CarrierAnswer
from fieldpost.core.sites.message import Category, Message
from fieldpost.link.session import Room
from fieldpost.site.buffer.rows import Outgoing


class Carrier(Protocol):
    """What the forwarder needs of a carrier of notifications, which go in batches to one place."""

    category: Category

    def room(self) -> Room:
        """How much it would take in the next batch."""

    async def carry(self, messages: Sequence[Outgoing]) -> Sequence[CarrierAnswer]:
        """Try these messages: one answer each, in their order.

        Raises Denied, Unavailable or ConfigError when none of them left the site.
        """

    @property
    def may_go_on(self) -> bool:
        """Whether the other side is ready for another batch at once."""

    async def close(self) -> None:
        """Give back what is held open."""


class Definition(Protocol):
    """What the engine needs to know of an external system or a database connection."""

    @property
    def timeout_s(self) -> float: ...
    @property
    def retry_interval(self) -> timedelta: ...
    @property
    def retries_max(self) -> int: ...


D = TypeVar("D", bound=Definition)
D_contra = TypeVar("D_contra", contravariant=True, bound=Definition)


class CallCarrier(Protocol[D_contra]):
    """Takes one cached call at a time to where its definition says; in the agent and in a caller's own process alike.

    Used from one event loop, from which many attempts may be under way at once.
    """

    category: Category

    async def attempt(self, message: Message, definition: D_contra | None) -> CarrierAnswer:
        """Make one attempt, within the definition's time; without a definition the answer is a refusal.

        Never raises for what the world does.
        """

    async def close(self) -> None:
        """Give back what is held open."""
