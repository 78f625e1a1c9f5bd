"""Who takes which category of message out of the site: one module per category. Imports: core, link, outbound."""

from collections.abc import Sequence
from typing import Protocol

from fieldpost.core.forwarding import Answer
from fieldpost.core.message import Category, Message
from fieldpost.link.session import Room


class Carrier(Protocol):
    """What the forwarder needs of a carrier; it knows categories by nothing else."""

    category: Category

    def room(self) -> Room:
        """How much it would take in the next batch."""

    async def carry(self, messages: Sequence[Message]) -> Sequence[Answer]:
        """Try these messages: one answer each, in their order.

        Raises Denied, Unavailable or ConfigError when none of them left the site.
        """

    @property
    def may_go_on(self) -> bool:
        """Whether the other side is ready for another batch at once."""

    async def close(self) -> None:
        """Give back what is held open."""
