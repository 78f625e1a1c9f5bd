"""What a process that stays has loaded and made by its start: a quarter of a million objects of which none is garbage.

Python would look through all of them, for a twentieth of a second, each time that enough has been made anew: while a
backlog is on its way, every few thousand rows.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collecting() -> Iterator[None]:
    """What is imported within is not searched for garbage, neither while it is made nor ever after."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def set_aside() -> None:
    """What there is by now is not searched for garbage ever after; the little that is garbage already stays."""
    gc.freeze()
