"""Random lives of notifications on both stores, held against a model after every act.

`make chaos` walks further: tests/chaos/test_life.py. A failure prints the steps that lead to it, each as a call.
"""

from functools import partial

import pytest

from support.databases import apart
from support.life_machine import walk


@pytest.mark.req("LIF-06", "LIF-08", "LIF-09", "LIF-10", "AUD-01", "AUD-02", "AUD-03")
@pytest.mark.req("DEC-03", "DEC-05", "DEC-06", "DEC-07", "DEC-10", "DEC-11", "DEC-12", "DEC-14")
def test_every_life_is_as_the_model_has_it(store_url: str) -> None:
    apart(partial(walk, store_url, lives=50, steps=30))
