"""Central's lease on the leadership of a pair: who holds the highest epoch, and until when.

The rules are applied to the stored lease by compare-and-set, with the time of central's database. A lease is granted
only after the previous one has ended or was given back, so a leader with a valid lease is the only one. Any central
node may answer, since the lease is in the store.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fieldpost.core.pair.numbering import is_epoch_of, next_epoch

LEASE = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochLease:
    """The highest epoch that central knows of a site, its holder and the end of the lease."""

    epoch: int
    node: int
    until: datetime | None
    """None after the holder gave it back."""
    is_taken: bool = False
    """Whether the node took this epoch without central."""

    def is_valid(self, now: datetime) -> bool:
        return self.until is not None and now < self.until


def grant(lease: EpochLease | None, node: int, known: int, now: datetime) -> EpochLease | None:
    """The lease of the next epoch for this node; None while the present one is valid.

    A node that asks again because the answer was lost gets the same epoch: `known` shows that it never heard of it.
    """
    if lease is None:
        return EpochLease(epoch=next_epoch(node, known), node=node, until=now + LEASE)
    if lease.is_valid(now):
        return lease if lease.node == node and known < lease.epoch else None
    return EpochLease(epoch=next_epoch(node, max(known, lease.epoch)), node=node, until=now + LEASE)


def renew(lease: EpochLease | None, node: int, epoch: int, now: datetime) -> EpochLease | None:
    """The renewed lease of this epoch; None if it is not the highest, or was given back.

    A higher epoch than the known one was taken without central. It is adopted, since epochs only grow, but not before
    the lease of the other node has ended: that node may execute until then.
    """
    if not is_epoch_of(node, epoch):
        return None
    if lease is None or epoch > lease.epoch:
        if lease is not None and lease.node != node and lease.is_valid(now):
            return None
        return EpochLease(epoch=epoch, node=node, until=now + LEASE, is_taken=True)
    if epoch < lease.epoch or lease.until is None:
        return None
    return replace(lease, until=max(lease.until, now + LEASE))


def force(lease: EpochLease | None, node: int, epoch: int, now: datetime) -> EpochLease | None:
    """The lease of an epoch that a person forced. It begins at once, even while the lease of the other node is valid.

    The other node hears of the higher epoch with its next renewal, and stops.
    """
    if lease is not None and epoch > lease.epoch and is_epoch_of(node, epoch):
        return EpochLease(epoch=epoch, node=node, until=now + LEASE, is_taken=True)
    return renew(lease, node, epoch, now)


def give_back(lease: EpochLease | None, node: int, epoch: int) -> EpochLease | None:
    """The lease after its holder has stopped executing; None if this is not the holder's epoch."""
    if lease is None or (lease.node, lease.epoch) != (node, epoch):
        return None
    return replace(lease, until=None)
