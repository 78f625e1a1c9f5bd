"""GC tuning: freeze the ~250,000 objects alive after start-up so that collections skip them.

A full collection over them takes 50 ms, and while a backlog is processed one would run every few thousand rows.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS_BETWEEN = 20_000
"""Net allocations between two collections: a few megabytes of cyclic garbage at most."""


@contextmanager
def without_collecting() -> Iterator[None]:
    """Import without collections; objects created within are frozen."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def set_aside() -> None:
    """Freeze all present objects, and collect less often from now on.

    A few batches in progress exceed Python's default threshold of 700 objects, although reference counting frees them
    a moment later.
    """
    gc.freeze()
    gc.set_threshold(OBJECTS_BETWEEN, *gc.get_threshold()[1:])
