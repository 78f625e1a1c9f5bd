"""A thousand receivers, of which 120 are in trouble, beside mail, on two nodes."""

import sys

import pytest

from support.many_receivers import CrowdSize, check, run_crowd

SIZE = CrowdSize(receivers=1000, hanging=50, failing=50, silent=20, events=3, backlog=20, mails=2000, timeout_s=300)


@pytest.mark.fault(54, 72)
@pytest.mark.dec("DEC-09", "DEC-22", "DEC-46", "DEC-47")
@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2")
async def test_thousand_receivers_some_of_which_hang_fail_or_do_not_resolve(pg_url: str) -> None:
    check(await run_crowd(pg_url, SIZE), SIZE)
