"""Fresh ids for what scripts send, their entropy drawn from the system for many at a time.

To ask the system lets the other threads of a script in, which with many of them costs far more than the id itself. No
entropy is ever used twice: not by two threads, and not by a parent and its forked child.
"""

import os

from fieldpost.core.ids import ENTROPY_BYTES, id_tails, id_with

_DRAWN = 256
_tails: list[str] = []


def fresh_id(milliseconds: int) -> str:
    """An id of this time that nobody has."""
    try:
        tail = _tails.pop()
    except IndexError:
        drawn = id_tails(os.urandom(_DRAWN * ENTROPY_BYTES))
        tail = drawn.pop()
        _tails.extend(drawn)
    return id_with(milliseconds, tail)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tails.clear)
