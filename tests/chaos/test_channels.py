"""Many messages to providers that enforce their real limits."""

import pytest

from fieldpost.testing import ManualClock
from support.centre import open_centre
from support.provider_limits import check_crowd, run_crowd


@pytest.mark.req("CHN-02", "CHN-03")
@pytest.mark.dec("DEC-60")
@pytest.mark.timeout(600)
async def test_two_thousand_within_the_limits_of_the_providers(store_url: str) -> None:
    clock = ManualClock()
    async with open_centre(store_url, clock) as centre:
        check_crowd(await run_crowd(centre, clock, count=2000, rooms=25, step_s=0.2))
