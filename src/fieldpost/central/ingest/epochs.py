"""Epoch requests of the nodes of a pair: grant, renew, give back, and record epochs taken without central.

The token names the node that asks. A renewal may come from either node, since the leader may have lost its own link to
central; the parity of the epoch names the holder. Everything else a node may do only for itself. A removed node gets
and keeps nothing.

Requests of many sites share a transaction: each pair renews its lease every three seconds. Within it the sites are
locked in the order of their names.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from logging import INFO, WARNING

import structlog
from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import record
from fieldpost.central.store.engine.batcher import Batcher
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.engine.wake import WakeTopic
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.sites import epochs, nodes, switches
from fieldpost.central.store.sites import health as site_health
from fieldpost.central.store.sites.epochs import LeaseResult
from fieldpost.core.actor import Actor, Role
from fieldpost.core.errors import InvalidInput
from fieldpost.core.pair.numbering import EPOCH_MAX, is_epoch_of
from fieldpost.core.pair.switch import EpochSwitch, SwitchCause
from fieldpost.core.sites.node import SiteNode
from fieldpost.core.text import printable_line
from fieldpost.core.times import from_text, to_text
from fieldpost.link.messages import EpochAnswer, EpochAsk, EpochGiveBack, EpochRenew, EpochTaken

EpochRequest = EpochAsk | EpochRenew | EpochGiveBack | EpochTaken

EPOCH_FIRST = 2
"""The first epoch under which a node leads: the nodes number their changes under 0 and 1 before."""
REASON_BYTES_MAX = 256

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Served:
    """The result of a request, and the switch that it caused or reported, if central did not know it."""

    result: LeaseResult
    switch: EpochSwitch | None = None


class EpochLeases:
    """Answers the epoch requests that arrive at one central node."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._requests = Batcher(self._serve)

    async def answer(self, sender: SiteNode, request: EpochRequest) -> EpochAnswer:
        """Answer a request after the commit. Raises InvalidInput for an epoch that the sender may not request."""
        _check(sender, request)
        served = await self._requests.submit((sender, request))
        lease = served.result.lease
        if (switch := served.switch) is not None:
            log.log(
                WARNING if switch.is_taken else INFO,
                "epoch.switched",
                site=switch.site,
                node=switch.node,
                epoch=switch.epoch,
                cause=switch.cause.value,
            )
            # Open commands go to the new leader.
            self._store.wake.set(WakeTopic.COMMANDS)
        return EpochAnswer(request.request, lease.epoch if lease else 0, served.result.is_granted)

    async def _serve(self, requests: Sequence[tuple[SiteNode, EpochRequest]]) -> Sequence[_Served]:
        return await self._store.write(_serve_all, requests, now=self._store.now())


def _check(sender: SiteNode, request: EpochRequest) -> None:
    match request:
        case EpochAsk(known=known):
            if known > EPOCH_MAX - 2:
                raise InvalidInput("epoch.range", f"known must be at most {EPOCH_MAX - 2}, got {known}", field="known")
        case EpochRenew(epoch=epoch):
            if not EPOCH_FIRST <= epoch <= EPOCH_MAX:
                text = f"epoch must be between {EPOCH_FIRST} and {EPOCH_MAX}, got {epoch}"
                raise InvalidInput("epoch.range", text, field="epoch")
        case EpochGiveBack(epoch=epoch) | EpochTaken(epoch=epoch):
            if not is_epoch_of(sender.node, epoch):
                raise InvalidInput(
                    "epoch.other_node",
                    f"epoch {epoch} is not an epoch of node {sender.node}, whose token was sent",
                    field="epoch",
                )


def _serve_all(
    conn: Connection, requests: Sequence[tuple[SiteNode, EpochRequest]], *, now: datetime | None
) -> list[_Served]:
    order = sorted(range(len(requests)), key=lambda index: requests[index][0].site)
    served = {index: _serve_one(conn, *requests[index], now=now) for index in order}
    return [served[index] for index in range(len(requests))]


def _serve_one(conn: Connection, sender: SiteNode, request: EpochRequest, *, now: datetime | None) -> _Served:
    site = sender.site
    holder = request.epoch % 2 if isinstance(request, EpochRenew) else sender.node
    if holder not in nodes.of_site(conn, site):
        return _Served(LeaseResult(epochs.get(conn, site), False))
    match request:
        case EpochAsk(known=known):
            result, cause = epochs.grant(conn, site, holder, known, now=now), SwitchCause.GRANTED
        case EpochRenew(epoch=epoch):
            result, cause = epochs.renew(conn, site, holder, epoch, now=now), SwitchCause.TAKEN
        case EpochGiveBack(epoch=epoch):
            return _Served(epochs.give_back(conn, site, holder, epoch))
        case EpochTaken():
            return _record_taken(conn, sender, request, now=now)
    if not result.is_switch or result.lease is None:
        return _Served(result)
    site_health.adopt(conn, site, holder)
    at = database_time(conn, now)
    switch = EpochSwitch(site=site, epoch=result.lease.epoch, cause=cause, recorded_at=at)
    return _Served(result, switch if _record(conn, switch) else None)


def _record_taken(conn: Connection, sender: SiteNode, taken: EpochTaken, *, now: datetime | None) -> _Served:
    """Record an epoch that the node took, whether or not it is still the highest, and adopt it if possible."""
    # A leader that handed over has stopped, even if its lease has not ended.
    adopt = epochs.force if taken.cause in ("forced", "handed_over") else epochs.renew
    result = adopt(conn, sender.site, sender.node, taken.epoch, now=now)
    if result.is_switch:
        site_health.adopt(conn, sender.site, sender.node)
    switch = EpochSwitch(
        site=sender.site,
        epoch=taken.epoch,
        cause=SwitchCause(taken.cause),
        reason=None if taken.reason is None else printable_line(taken.reason, REASON_BYTES_MAX),
        taken_at=from_text(taken.taken_at),
        recorded_at=database_time(conn, now),
    )
    return _Served(result, switch if _record(conn, switch) else None)


def _record(conn: Connection, switch: EpochSwitch) -> bool:
    """Write the switch and its audit entry; False if it is known."""
    if not switches.record(conn, switch):
        return False
    extra: dict[str, object] = {"node": switch.node, "epoch": switch.epoch, "cause": switch.cause.value}
    if switch.reason is not None:
        extra["reason"] = switch.reason
    if switch.taken_at is not None:
        extra["taken_at"] = to_text(switch.taken_at)
    actor = Actor(switch.site, Role.VIEWER)
    audit.add(conn, [record(actor, "site.lead", switch.site, switch.recorded_at, extra)])
    return True
