"""What a process that stays has loaded and made by its start: a quarter of a million objects of which none is garbage.

Python would look through all of them, for a twentieth of a second, each time that enough has been made anew: while a
backlog is on its way, every few thousand rows.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS_BETWEEN = 20_000
"""So many more are made than freed before there is a search: a few megabytes of what only a search can free."""


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
    """What there is by now is not searched for garbage ever after; the little that is garbage already stays.

    And what is made from now on is searched less often: a few batches on their way are more than the 700 objects after
    which Python would begin, again and again, though they are gone by themselves in a moment.
    """
    gc.freeze()
    gc.set_threshold(OBJECTS_BETWEEN, *gc.get_threshold()[1:])
