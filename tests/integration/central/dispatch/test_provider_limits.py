"""Telegram and Slack at their real limits: everything arrives once, and hardly a request is turned away."""

import pytest

from fieldpost.testing import ManualClock
from support.centre import Centre
from support.provider_limits import check_crowd, run_crowd


@pytest.mark.req("CHN-02", "CHN-03")
@pytest.mark.dec("DEC-60")
async def test_a_crowd_arrives_within_the_limits_of_the_providers(centre: Centre, clock: ManualClock) -> None:
    check_crowd(await run_crowd(centre, clock, count=120, rooms=3, step_s=1))
