"""The power of a disk cut again and again, under a site and under an embedded central."""

from pathlib import Path

import pytest

from support.disks import PowerDisk
from support.storage_ordeals import CONFIRMED_BEFORE_CUT, cut_the_power_of_a_site, cut_the_power_of_central


@pytest.mark.fault(3)
def test_twenty_power_cuts_of_a_site_lose_nothing_confirmed(tmp_path: Path) -> None:
    """One buffer lives through all of them."""
    with PowerDisk(tmp_path, 256) as disk:
        confirmed = [cut_the_power_of_a_site(disk) for _ in range(20)]
    assert all(count >= CONFIRMED_BEFORE_CUT for count in confirmed)


@pytest.mark.fault(4)
async def test_ten_power_cuts_of_central_lose_nothing_acked(tmp_path: Path) -> None:
    with PowerDisk(tmp_path, 512) as disk:
        for _ in range(10):
            assert await cut_the_power_of_central(disk, tmp_path) > 100
