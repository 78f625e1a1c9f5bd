"""The walk of tests/property/test_life.py, twenty times as far."""

from functools import partial

import pytest

from support.databases import apart
from support.life_machine import walk


@pytest.mark.timeout(1800)
@pytest.mark.req("DEC-03", "DEC-05", "DEC-06", "DEC-11")
def test_many_long_random_runs_agree_with_the_model(store_url: str) -> None:
    apart(partial(walk, store_url, lives=500, steps=60, is_new=True))
