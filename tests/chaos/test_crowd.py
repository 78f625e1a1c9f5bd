"""Twenty processes of four threads send into one buffer, while its agent forwards and is killed ten times."""

from pathlib import Path

import pytest

from support.many_scripts import send_in_a_crowd


@pytest.mark.timeout(1800)
@pytest.mark.fault(1)
@pytest.mark.req("API-01", "DEC-01", "DEC-24", "SF-07", "SF-08")
async def test_fifty_thousand_notifications_of_eighty_threads_arrive_once(store_url: str, tmp_path: Path) -> None:
    await send_in_a_crowd(store_url, tmp_path, processes=20, threads=4, count=50_000, kills=10, timeout_s=600)
