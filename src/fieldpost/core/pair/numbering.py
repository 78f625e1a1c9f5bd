"""Numbers of changes and versions of calls in a pair: epoch x 2^32 + count.

The two nodes of a pair are 0 and 1, and a node holds only epochs of its own parity, so no epoch ever has two holders.
A number made under a later epoch is higher than every number of an earlier one. Cursors and the mirror at central
therefore continue across a failover, although the new leader may not know the last numbers of the former one.
"""

EPOCH_STEP = 2**32
"""How many numbers an epoch has."""
EPOCH_MAX = 2**21 - 1
"""The last epoch: its numbers are within 2^53, the exact integers of every JSON parser."""


def first_epoch(node: int) -> int:
    """The epoch of a node that never led: 0 or 1."""
    return node


def next_epoch(node: int, known: int) -> int:
    """The next epoch of the node, higher than any known one. Raises OverflowError after the last one."""
    epoch = known + 1 if (known + 1) % 2 == node else known + 2
    if epoch > EPOCH_MAX:
        raise OverflowError(f"the pair has used all {EPOCH_MAX + 1} epochs")
    return epoch


def is_epoch_of(node: int, epoch: int) -> bool:
    """Whether the node may hold this epoch."""
    return 0 <= epoch <= EPOCH_MAX and epoch % 2 == node


def first_number(epoch: int) -> int:
    """The number before the first change of the epoch."""
    return epoch * EPOCH_STEP


def epoch_of(number: int) -> int:
    """The epoch under which the change with this number was made."""
    return number // EPOCH_STEP


def next_version(version: int, change: int) -> int:
    """The version of a call that changes now: one more, and at least the first of the epoch of the change."""
    return max(version + 1, first_number(epoch_of(change)))
