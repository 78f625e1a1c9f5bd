"""Handling of messages on a control connection, one case per message.

A FieldpostError raised here becomes a Refusal, and the connection stays open.
"""

from fieldpost.core.errors import InvalidInput
from fieldpost.front.backend import Backend
from fieldpost.front.connections import ControlLink
from fieldpost.link.codec import UNFIT
from fieldpost.link.messages import CommandResult, Health, LinkMessage, ReconcileAnswer, Refusal, Telemetry


async def connected(site: str, link: ControlLink, backend: Backend) -> None:
    """The site has opened its control connection and said hello."""
    backend.commands.connected(site)


async def disconnected(site: str, link: ControlLink, backend: Backend) -> None:
    """The connection is over; there may be another one of the same site."""
    backend.commands.disconnected(site)


async def handle(message: LinkMessage, site: str, backend: Backend) -> LinkMessage | None:
    """Handle a message and return the answer, if there is one. The token alone identifies the site."""
    match message:
        case Telemetry():
            return await backend.ingest.mirrors.telemetry(site, message)
        case ReconcileAnswer():
            return await backend.ingest.mirrors.answer(site, message)
        case CommandResult():
            await backend.commands.intents.settle(site, message)
            return None
        case Health():
            await backend.ingest.health.keep(site, message)
            return None
        case Refusal():
            # The site does not know what it was asked, being of an older version, or made a mistake over it.
            return None
        case _:
            raise InvalidInput(UNFIT, f"central does not accept {type(message).__name__} on a control connection")
