"""Health reports of sites.

A site and its node are identified by the token alone. Only the newest report of each node is kept. That of the leader
is the report of the site.
"""

from collections.abc import Sequence
from datetime import datetime
from math import isfinite

from sqlalchemy import Connection

from fieldpost.central.store.engine.batcher import Batcher
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.sites import epochs, nodes
from fieldpost.central.store.sites import health as site_health
from fieldpost.core.errors import InvalidInput
from fieldpost.core.sites.health import PairReport, SiteHealth, SiteReport
from fieldpost.core.sites.node import FIRST_NODE, SiteNode
from fieldpost.core.text import printable_line, truncate
from fieldpost.core.times import from_text
from fieldpost.link.messages import Health, PairHealth

COUNT_MAX = 2**53
KINDS_MAX = 16
"""How many categories or severities a report may name: there are three of each."""

DIFFERENCES_MAX = 50
"""How many differences between the nodes of a pair are kept."""

_Received = tuple[SiteNode, SiteReport, datetime | None]
"""A node, its report, and the time of sending by the site's clock."""


class HealthReports:
    """Stores the health reports that arrive at one central node."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # Thousands of sites report at the same time after a restart.
        self._batcher = Batcher(self._write)

    async def keep(self, site: str, message: Health, node: int = FIRST_NODE) -> None:
        """Check a report and keep it as the newest of its node.

        Raises InvalidInput for counts out of range, or if it names another node than the token.
        """
        sender = SiteNode(site, node)
        report = SiteReport(
            version=printable_line(message.version, 64),
            backlog=_counts(message.backlog, "backlog"),
            oldest_age_s=_seconds(message.oldest_age_s),
            parked=check_count(message.parked, "parked"),
            rejected=check_count(message.rejected, "rejected"),
            disk_free_bytes=(
                None if message.disk_free_bytes is None else check_count(message.disk_free_bytes, "disk_free_bytes")
            ),
            events=_counts(message.events, "events"),
            is_forwarding=message.is_forwarding,
            forward_error=None if message.forward_error is None else truncate(message.forward_error),
            failing_for_s=None if message.failing_for_s is None else _seconds(message.failing_for_s),
            uptime_s=_seconds(message.uptime_s),
            is_stopping=message.is_stopping,
            pair=None if message.pair is None else _pair(sender, message.pair),
        )
        await self._batcher.submit((sender, report, from_text(message.sent_at)))

    async def _write(self, received: Sequence[_Received]) -> Sequence[None]:
        await self._store.write(_keep, received, now=self._store.now())
        return [None] * len(received)


def _keep(conn: Connection, received: Sequence[_Received], *, now: datetime | None) -> None:
    at = database_time(conn, now)
    kept = []
    for sender, report, sent_at in received:
        offset_s = (sent_at - at).total_seconds() if sent_at is not None else 0.0
        kept.append((sender, SiteHealth(site=sender.site, received_at=at, report=report, clock_offset_s=offset_s)))
    leaders = epochs.leaders(conn, {sender.site for sender, _ in kept})
    nodes.keep(conn, [one for one in kept if one[0].site in leaders])
    site_health.keep(
        conn,
        [health for sender, health in kept if sender.site not in leaders or leaders[sender.site].node == sender.node],
    )


def _pair(sender: SiteNode, pair: PairHealth) -> PairReport:
    if pair.node != sender.node:
        raise InvalidInput(
            "health.node", f"node must be {sender.node}, the node of the token, got {pair.node}", field="pair.node"
        )
    return PairReport(
        known=check_count(pair.known, "pair.known"),
        is_leading=pair.is_leading,
        grounds=None if pair.grounds is None else printable_line(pair.grounds, 16),
        peer_age_s=None if pair.peer_age_s is None else _seconds(pair.peer_age_s),
        lag_changes=check_count(pair.lag_changes, "pair.lag_changes"),
        lag_s=_seconds(pair.lag_s),
        differences=tuple(printable_line(name, 128) for name in pair.differences[:DIFFERENCES_MAX]),
    )


def check_count(value: int, field: str) -> int:
    """Return the count, or raise InvalidInput if it is negative or too large for the store."""
    if not 0 <= value <= COUNT_MAX:
        raise InvalidInput("count.range", f"{field} must be between 0 and {COUNT_MAX}, got {value}", field=field)
    return value


def _counts(values: dict[str, int], field: str) -> dict[str, int]:
    if len(values) > KINDS_MAX:
        raise InvalidInput(
            "health.too_many", f"{field} must have at most {KINDS_MAX} entries, got {len(values)}", field=field
        )
    return {printable_line(name, 64): check_count(value, field) for name, value in values.items()}


def _seconds(value: float) -> float:
    return min(max(value, 0.0), float(COUNT_MAX)) if isfinite(value) else 0.0
