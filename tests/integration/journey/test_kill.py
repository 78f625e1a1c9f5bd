"""Kill -9 of the agent or of central at random moments: every id that send() returned arrives all the same."""

from pathlib import Path

import pytest

from support.journey import kill_at_random


@pytest.mark.timeout(240)
@pytest.mark.fault(1, 22)
@pytest.mark.req("DEC-01", "TOP-03", "ING-07", "SF-08")
async def test_every_id_returned_by_send_arrives_after_random_kills(store_url: str, tmp_path: Path) -> None:
    is_embedded = store_url.startswith("sqlite")
    await kill_at_random(store_url, tmp_path, kills=8 if is_embedded else 6)
