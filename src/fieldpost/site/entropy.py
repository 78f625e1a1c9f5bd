"""Entropy for ids, drawn from the system for many at a time.

To ask the system lets the other threads of a script in, which with many of them costs far more than the id itself. No
piece is ever given twice: not to two threads, and not to a parent and its forked child.
"""

import os

ENTROPY_BYTES = 10
"""What one id takes."""
_PIECES = 256

_kept: list[bytes] = []


def entropy() -> bytes:
    """Fresh entropy for one id."""
    try:
        return _kept.pop()
    except IndexError:
        drawn = os.urandom(ENTROPY_BYTES * _PIECES)
        pieces = [drawn[at : at + ENTROPY_BYTES] for at in range(0, len(drawn), ENTROPY_BYTES)]
        mine = pieces.pop()
        _kept.extend(pieces)
        return mine


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_kept.clear)
