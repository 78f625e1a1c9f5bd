"""Two nodes tend the breakers of ten thousand subscriptions at the same time."""

import pytest

from support.many_breakers import check, hold_probe_and_release

COUNT = 10_000


@pytest.mark.req("DEC-22", "DEC-44")
@pytest.mark.timeout(600)
async def test_two_nodes_hold_probe_and_release_ten_thousand_breakers_without_a_deadlock(pg_url: str) -> None:
    check(await hold_probe_and_release(pg_url, COUNT), COUNT)
