"""What the garbage collector leaves alone."""

import subprocess
import sys

SET_ASIDE = """
import gc
from fieldpost.run import gc_tuning

class Ring:
    pass

gc_tuning.set_aside()
kept = gc.get_freeze_count()
ring = Ring()
ring.itself = ring
del ring
print(kept > 1000, gc.get_threshold()[0] == gc_tuning.OBJECTS_BETWEEN, gc.isenabled(), gc.collect() > 0)
"""


def test_objects_of_the_start_are_frozen_and_later_ones_are_collected() -> None:
    told = subprocess.run([sys.executable, "-c", SET_ASIDE], check=True, capture_output=True, text=True)
    assert told.stdout.split() == ["True"] * 4
