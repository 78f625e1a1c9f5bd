"""Handling of messages on a control connection, one case per message.

A FieldpostError raised here becomes a Refusal, and the connection stays open.
"""

from fieldpost.core.errors import InvalidInput
from fieldpost.core.sites.node import SiteNode
from fieldpost.front.backend import Backend
from fieldpost.front.connections import ControlLink
from fieldpost.link.codec import UNFIT
from fieldpost.link.messages import (
    STANDBY,
    CommandResult,
    EpochAsk,
    EpochGiveBack,
    EpochRenew,
    EpochTaken,
    Health,
    LinkMessage,
    ReconcileAnswer,
    Refusal,
    Telemetry,
)


async def connected(link: ControlLink, backend: Backend) -> None:
    """The site has opened its control connection and said hello."""
    backend.commands.connected(link.site)


async def disconnected(link: ControlLink, backend: Backend) -> None:
    """The connection is over; there may be another one of the same site."""
    backend.commands.disconnected(link.site)


async def handle(message: LinkMessage, sender: SiteNode, backend: Backend) -> LinkMessage | None:
    """Handle a message and return the answer, if there is one. The token alone identifies the site and the node."""
    match message:
        case Telemetry():
            return await backend.ingest.mirrors.telemetry(sender.site, message, sender.node)
        case ReconcileAnswer():
            return await backend.ingest.mirrors.answer(sender.site, message, sender.node)
        case CommandResult():
            await backend.commands.intents.settle(sender.site, message)
            return None
        case Health():
            await backend.ingest.health.keep(sender.site, message, sender.node)
            return None
        case EpochAsk() | EpochRenew() | EpochGiveBack() | EpochTaken():
            return await backend.ingest.epochs.answer(sender, message)
        case Refusal():
            if message.code == STANDBY:
                backend.commands.refused(sender.site)
            # Otherwise the site did not understand the request: it has an older version, or a bug.
            return None
        case _:
            raise InvalidInput(UNFIT, f"central does not accept {type(message).__name__} on a control connection")
