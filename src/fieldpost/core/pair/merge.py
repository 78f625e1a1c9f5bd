"""Merging two branches of one call: the rows that both nodes of a pair have for the same id.

A call has one branch as long as each node continues from the other's copy. It has two if both nodes changed it without
knowledge of each other: the versions then belong to different epochs. The branch that got further wins, because a
target must not be called again for a call that it has accepted, or that a person has discarded.
"""

from dataclasses import dataclass

from fieldpost.core.pair.numbering import epoch_of
from fieldpost.core.sites.message import CallStatus

_ORDER = (
    CallStatus.PENDING,
    CallStatus.RETRYING,
    CallStatus.PARKED,
    CallStatus.FAILED,
    CallStatus.DISCARDED,
    CallStatus.DELIVERED,
)
_RANK = {status: rank for rank, status in enumerate(_ORDER)}


@dataclass(frozen=True, slots=True)
class Branch:
    """The state of a call at one node."""

    status: CallStatus
    version: int


@dataclass(frozen=True, slots=True)
class MergedBranch:
    """The result of merging a branch of the other node into ours."""

    takes_theirs: bool
    is_branched: bool = False
    """Whether both nodes had changed the call: the result is a new state, with a new version."""
    is_duplicate: bool = False
    """Whether the target accepted the call from both nodes."""


def merge(ours: Branch | None, theirs: Branch) -> MergedBranch:
    """Decide which branch continues. A call that this node does not have is taken as it is."""
    if ours is None:
        return MergedBranch(takes_theirs=True)
    if epoch_of(ours.version) == epoch_of(theirs.version):
        # The same node made both versions; the higher one is its later state.
        return MergedBranch(takes_theirs=theirs.version > ours.version)
    rank, their_rank = _RANK[ours.status], _RANK[theirs.status]
    is_delivered_twice = ours.status is theirs.status is CallStatus.DELIVERED
    if rank == their_rank:
        return MergedBranch(theirs.version > ours.version, is_branched=True, is_duplicate=is_delivered_twice)
    return MergedBranch(their_rank > rank, is_branched=True)
