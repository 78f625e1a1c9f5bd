"""What a site says on its control connection, and what central does about it: one case per message.

Whatever is raised here as a FieldpostError becomes a Refusal, and the connection stays.
"""

from fieldpost.core.errors import InvalidInput
from fieldpost.front.links import ControlLink
from fieldpost.front.rooms import Rooms
from fieldpost.link.codec import UNFIT
from fieldpost.link.messages import Message


async def connected(site: str, link: ControlLink, rooms: Rooms) -> None:
    """The site has opened its control connection and said hello."""


async def disconnected(site: str, link: ControlLink, rooms: Rooms) -> None:
    """The connection is over; there may be another one of the same site."""


async def handle(message: Message, site: str, rooms: Rooms) -> Message | None:
    """The answer to what the site said, if it wants one."""
    raise InvalidInput(UNFIT, f"central does not take {type(message).__name__} on a control connection")
