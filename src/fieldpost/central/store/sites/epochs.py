"""The epoch lease of each site with two nodes: which node leads under which epoch, by the database's clock.

The rules are in `core.pair.epoch_lease`; this module applies them to the stored lease. The row is locked while a rule
is applied, and a first lease is only inserted, so of two nodes that ask at once one gets it.
"""

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import BigInteger, Connection, Integer, Text

from fieldpost.central.store.engine.records import Records
from fieldpost.central.store.engine.statement import Statement, database_time
from fieldpost.central.store.schema.site_tables import site_epochs
from fieldpost.core.pair import epoch_lease
from fieldpost.core.pair.epoch_lease import EpochLease

_LEASES = Records(site_epochs, EpochLease)

_insert = Statement(
    """
    insert into site_epochs (site, epoch, node, until, is_taken) values (:site, :epoch, :node, :until, :is_taken)
    on conflict (site) do nothing returning site
    """
)
_update = Statement(
    """
    update site_epochs set epoch = :epoch, node = :node, until = :until, is_taken = :is_taken
    where site = :site and epoch = :known
    """
)


# A holder that was removed leads no more. Before the first epoch the first node counts as the leader.
_leaders = Statement(
    """
    select n.site, coalesce(max(case when n.node = e.node then e.node end), min(n.node)) as node,
        coalesce(max(e.epoch), 0) as epoch
    from site_nodes n left join site_epochs e on e.site = n.site where n.site {any:sites} group by n.site
    """,
    lists={"sites": "text"},
    result={"site": Text, "node": Integer, "epoch": BigInteger},
)


@dataclass(frozen=True, slots=True)
class PairLeader:
    """The node of a site that has the highest epoch."""

    node: int
    epoch: int


@dataclass(frozen=True, slots=True)
class LeaseResult:
    """The lease of a site after a request, and whether the request was fulfilled."""

    lease: EpochLease | None
    is_granted: bool
    is_switch: bool = False
    """Whether the request changed the epoch."""


def grant(conn: Connection, site: str, node: int, known: int, *, now: datetime | None) -> LeaseResult:
    """Grant the next epoch to this node, unless the lease of another one is valid."""
    moment = database_time(conn, now)
    return _apply(conn, site, lambda lease: epoch_lease.grant(lease, node, known, moment))


def renew(conn: Connection, site: str, node: int, epoch: int, *, now: datetime | None) -> LeaseResult:
    """Renew the lease of this epoch, or adopt a higher one that the node took without central."""
    moment = database_time(conn, now)
    return _apply(conn, site, lambda lease: epoch_lease.renew(lease, node, epoch, moment))


def force(conn: Connection, site: str, node: int, epoch: int, *, now: datetime | None) -> LeaseResult:
    """Adopt an epoch that a person forced, even while the lease of the other node is valid."""
    moment = database_time(conn, now)
    return _apply(conn, site, lambda lease: epoch_lease.force(lease, node, epoch, moment))


def give_back(conn: Connection, site: str, node: int, epoch: int) -> LeaseResult:
    """End the lease of this epoch, if this node holds it."""
    return _apply(conn, site, lambda lease: epoch_lease.give_back(lease, node, epoch))


def get(conn: Connection, site: str) -> EpochLease | None:
    """The lease of the site; None if it never had two nodes."""
    return _LEASES.first(conn, site_epochs.c.site == site)


def leaders(conn: Connection, sites: Collection[str]) -> dict[str, PairLeader]:
    """The leader of each of these sites; sites that never had a second node are left out."""
    if not sites:
        return {}
    return {row.site: PairLeader(row.node, row.epoch) for row in _leaders.run(conn, sites=sorted(sites))}


def _apply(conn: Connection, site: str, rule: Callable[[EpochLease | None], EpochLease | None]) -> LeaseResult:
    """Apply the rule to the locked lease; once more if another transaction has inserted the first one meanwhile."""
    while True:
        lease = _LEASES.first(conn, site_epochs.c.site == site, is_locked=True)
        found = rule(lease)
        if found is None or _put(conn, site, lease, found):
            is_switch = found is not None and (lease is None or lease.epoch != found.epoch)
            return LeaseResult(found or lease, found is not None, is_switch)


def _put(conn: Connection, site: str, before: EpochLease | None, lease: EpochLease) -> bool:
    """Store the lease; False if there was none before and another transaction has inserted one."""
    if before is None:
        return bool(_insert.run(conn, site=site, **asdict(lease)))
    _update.run(conn, site=site, known=before.epoch, **asdict(lease))
    return True
