"""New ids for messages, with entropy drawn from the system for many at a time.

A system call lets other threads run, which costs far more than the id if there are many of them. No entropy is used
twice: not by two threads, and not by a parent and its forked child.
"""

import os

from fieldpost.core.ids import ENTROPY_BYTES, id_tails, id_with

_DRAWN = 256
_tails: list[str] = []


def fresh_id(milliseconds: int) -> str:
    """A new unique id with this time."""
    try:
        tail = _tails.pop()
    except IndexError:
        drawn = id_tails(os.urandom(_DRAWN * ENTROPY_BYTES))
        tail = drawn.pop()
        _tails.extend(drawn)
    return id_with(milliseconds, tail)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tails.clear)
