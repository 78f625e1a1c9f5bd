"""Two nodes with many receivers, of which some hang, fail or cannot be resolved; tests/chaos has a thousand."""

import sys

import pytest

from support.many_receivers import CrowdSize, check, run_crowd

SIZE = CrowdSize(receivers=100, hanging=5, failing=5, silent=2, events=3, backlog=20, mails=200, timeout_s=300)

DEEP = CrowdSize(
    receivers=100, hanging=5, failing=5, silent=2, events=10, backlog=10, mails=50, timeout_s=300, slots=20
)
"""With eight slots each, the receivers that hang would take all forty slots of both nodes."""


@pytest.mark.fault(54, 72)
@pytest.mark.dec("DEC-09", "DEC-22", "DEC-46", "DEC-47")
@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2")
@pytest.mark.parametrize("size", [SIZE, DEEP], ids=["short", "more rows than slots"])
async def test_receivers_in_trouble_delay_no_other_and_get_everything_in_growing_steps(
    pg_url: str, size: CrowdSize
) -> None:
    check(await run_crowd(pg_url, size), size)
